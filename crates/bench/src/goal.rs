//! The values with which measured figures are compared: Dunlin's goals, claims of other systems' documents, and figures
//! that peers are known to reach.
//!
//! Each suite lists these values as constants, such as those in `spot/`. This module compares the values with the rows
//! of one run. It never divides a figure of one run by a figure of another run.

use crate::metric;
use crate::row::{FigureRow, RowNote, RowPattern, RowSet};

/// A performance goal of Dunlin: a measured figure, and the threshold that the figure must meet.
#[derive(Clone, Copy, Debug)]
pub struct Goal {
    /// The description of the goal.
    pub title: &'static str,
    /// Selects the row with Dunlin's measured figure.
    pub ours: RowPattern,
    /// The threshold that the figure must meet.
    pub threshold: Threshold,
}

/// The lowest or highest allowed value of a figure: a number, or a multiple of another row's figure.
#[derive(Clone, Copy, Debug)]
pub enum Threshold {
    /// The figure is at least this value.
    AtLeast(f64),
    /// The figure is at most this value.
    AtMost(f64),
    /// The figure must be at least this many times the figure of the other row, which is in the same run.
    TimesAtLeast(f64, RowPattern),
    /// The figure must be at most this many times the figure of the other row, which is in the same run.
    TimesAtMost(f64, RowPattern),
}

/// Whether a run meets a goal, and the figures that decide this.
#[derive(Clone, Debug, PartialEq)]
pub struct GoalVerdict {
    /// The measured figure of Dunlin.
    pub measured: f64,
    /// If the threshold refers to another row: the figure of that row.
    pub reference: Option<f64>,
    /// If the threshold refers to another row: Dunlin's figure divided by the figure of that row.
    pub ratio: Option<f64>,
    /// Whether the goal is met; `None` if the goal cannot be judged.
    pub met: Option<bool>,
    /// If the goal cannot be judged: the reason.
    pub reason: Option<String>,
}

impl Goal {
    /// Judges the goal. Returns `None` if the run lacks the row with the measured figure.
    pub fn judge(&self, rows: &RowSet) -> Option<GoalVerdict> {
        let ours = rows.find(&self.ours)?;
        let measured = ours.median;
        let verdict =
            |reference, ratio, met, reason| Some(GoalVerdict { measured, reference, ratio, met, reason });
        let (pattern, is_met): (&RowPattern, &dyn Fn(f64) -> bool) = match &self.threshold {
            Threshold::AtLeast(threshold) => return verdict(None, None, Some(measured >= *threshold), None),
            Threshold::AtMost(threshold) => return verdict(None, None, Some(measured <= *threshold), None),
            Threshold::TimesAtLeast(threshold, pattern) => (pattern, &move |ratio| ratio >= *threshold),
            Threshold::TimesAtMost(threshold, pattern) => (pattern, &move |ratio| ratio <= *threshold),
        };
        match rows.find(pattern) {
            None => verdict(None, None, None, Some(format!("no {} in this run", pattern.target))),
            Some(reference) if reference.unfair => {
                verdict(Some(reference.median), None, None, reference.note.clone())
            }
            Some(reference) => {
                let ratio = measured / reference.median;
                verdict(Some(reference.median), Some(ratio), Some(is_met(ratio)), None)
            }
        }
    }
}

impl Threshold {
    /// Returns a description of the threshold.
    pub fn text(&self, metric: &str) -> String {
        match self {
            Self::AtLeast(threshold) => format!("≥ {}", metric::format_metric(metric, *threshold)),
            Self::AtMost(threshold) => format!("≤ {}", metric::format_metric(metric, *threshold)),
            Self::TimesAtLeast(threshold, reference) => format!("≥ {threshold} × {}", reference.target),
            Self::TimesAtMost(threshold, reference) => format!("≤ {threshold} × {}", reference.target),
        }
    }

    /// For a threshold that is relative to another row, returns the pattern that selects the other row. Returns `None`
    /// for an absolute threshold.
    pub fn reference(&self) -> Option<&RowPattern> {
        match self {
            Self::AtLeast(_) | Self::AtMost(_) => None,
            Self::TimesAtLeast(_, reference) | Self::TimesAtMost(_, reference) => Some(reference),
        }
    }
}

/// A figure that another system's documentation states. Dunlin's measured figure is compared with this figure.
#[derive(Clone, Copy, Debug)]
pub struct PeerClaim {
    /// The description of the figure, in the words of the documentation.
    pub title: &'static str,
    /// The figure from the documentation, in the unit of Dunlin's metric.
    pub figure: f64,
    /// Selects the row with Dunlin's measured figure.
    pub ours: RowPattern,
}

impl PeerClaim {
    /// Returns the factor by which Dunlin's figure `measured` is better than the claimed figure. A factor below 1 means
    /// that Dunlin's figure is worse.
    pub fn times_better(&self, measured: f64) -> f64 {
        if metric::less_is_better(self.ours.metric) { self.figure / measured } else { measured / self.figure }
    }
}

/// A figure that a peer reached in an earlier run, and the figure of a bare socket, ring or disk in that run.
#[derive(Clone, Copy, Debug)]
pub struct PeerFigure {
    /// Selects the row with the peer's figure.
    pub peer: RowPattern,
    /// The figure that the peer reached in the earlier run.
    pub figure: f64,
    /// Selects the row with the floor's figure. The floor is a bare socket, ring or disk.
    pub floor: RowPattern,
    /// The figure of the floor in the earlier run.
    pub floor_figure: f64,
    /// Whether a higher figure of the floor also means a higher figure of the peer. This is so if the peer spends most
    /// of its time on moving bytes.
    pub rises_with_the_floor: bool,
}

/// How far a peer's figure may be below the expected figure, as a share. If the peer's figure is further below, no
/// ratio with the peer is computed.
const PEER_TOLERANCE: f64 = 0.20;

/// Marks the row of each peer whose figure is below the expected one. The expected figure is the known figure, scaled
/// by the floor of this run. Something else must have slowed down such a peer, so a comparison with it would be unfair.
/// A peer's row is also marked if the peer's floor was not measured in this run.
pub fn mark_unfair_peers(rows: &mut RowSet, peer_figures: &[PeerFigure]) {
    let judged: Vec<(FigureRow, RowNote)> = peer_figures
        .iter()
        .filter_map(|peer_figure| {
            let peer = rows.find(&peer_figure.peer)?;
            Some((peer.clone(), judge_peer(peer_figure, peer, rows.find(&peer_figure.floor))?))
        })
        .collect();
    rows.annotate(|row| {
        let same_point = |peer: &FigureRow| {
            peer.target == row.target && peer.case == row.case && peer.params == row.params
        };
        judged.iter().find(|(peer, _)| same_point(peer)).map(|(_, note)| note.clone())
    });
}

fn judge_peer(peer_figure: &PeerFigure, peer: &FigureRow, floor: Option<&FigureRow>) -> Option<RowNote> {
    let Some(floor) = floor else {
        let text =
            format!("not judged: no {} {} in this run", peer_figure.floor.target, peer_figure.floor.case);
        return Some(RowNote { text, unfair: true });
    };
    let floor_now = floor.median / peer_figure.floor_figure;
    let expected =
        peer_figure.figure * if peer_figure.rises_with_the_floor { floor_now } else { floor_now.min(1.0) };
    let less = metric::less_is_better(peer_figure.peer.metric);
    let reached = if less { expected / peer.median } else { peer.median / expected };
    let format_figure = |value| metric::format_metric(peer_figure.peer.metric, value);
    (reached < 1.0 - PEER_TOLERANCE).then(|| RowNote {
        text: format!(
            "{} instead of the {} expected on this machine, so no ratio is given",
            format_figure(peer.median),
            format_figure(expected)
        ),
        unfair: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::Params;
    use crate::stats::Summary;

    const OURS: RowPattern =
        RowPattern { target: "dunlin", case: "throughput", params: &[("bytes", "64")], metric: "msgs_per_s" };
    const PEER: RowPattern = RowPattern { target: "libzmq", ..OURS };
    const FLOOR: RowPattern = RowPattern { target: "raw", metric: "bytes_per_s", ..OURS };
    const PEER_FIGURE: PeerFigure =
        PeerFigure { peer: PEER, figure: 4.5e6, floor: FLOOR, floor_figure: 6e9, rises_with_the_floor: true };

    fn rows(figures: &[(RowPattern, f64)]) -> RowSet {
        let mut rows = RowSet::default();
        let params = Params::new().with("bytes", 64u64);
        for (pattern, value) in figures {
            let summary = Summary::of(&[*value]).unwrap();
            rows.push(FigureRow::new(
                "spot",
                pattern.case,
                pattern.target,
                &params,
                pattern.metric,
                summary,
                true,
            ))
            .unwrap();
        }
        rows
    }

    #[test]
    fn goal_is_undecided_if_the_other_system_was_not_measured() {
        let goal = Goal { title: "", ours: OURS, threshold: Threshold::TimesAtLeast(2.5, PEER) };
        let met = |rows: &RowSet| goal.judge(rows).unwrap().met;
        assert_eq!(met(&rows(&[(OURS, 10e6), (PEER, 4e6)])), Some(true));
        assert_eq!(met(&rows(&[(OURS, 9e6), (PEER, 4e6)])), Some(false));
        assert_eq!(met(&rows(&[(OURS, 9e6)])), None);
        assert_eq!(goal.judge(&rows(&[(PEER, 4e6)])), None);
    }

    #[test]
    fn goal_is_not_judged_if_the_compared_broker_was_too_slow() {
        let mut slow = rows(&[(OURS, 10e6), (PEER, 3e6), (FLOOR, 6e9)]);
        mark_unfair_peers(&mut slow, &[PEER_FIGURE]);
        let verdict = Goal { title: "", ours: OURS, threshold: Threshold::TimesAtLeast(2.5, PEER) }
            .judge(&slow)
            .unwrap();
        assert_eq!((verdict.ratio, verdict.met), (None, None));
        assert!(verdict.reason.unwrap().contains("3.00 M/s instead of the 4.50 M/s expected"));
    }

    #[test]
    fn expected_rate_of_a_peer_is_lower_on_a_slow_machine() {
        let mut rows = rows(&[(OURS, 5e6), (PEER, 2e6), (FLOOR, 3e9)]);
        mark_unfair_peers(&mut rows, &[PEER_FIGURE]);
        assert!(!rows.find(&PEER).unwrap().unfair);
    }

    #[test]
    fn fixed_expected_rate_is_not_raised_by_a_fast_baseline() {
        let small = PeerFigure { rises_with_the_floor: false, ..PEER_FIGURE };
        for (peer_figure, unfair) in [(PEER_FIGURE, true), (small, false)] {
            let mut rows = rows(&[(OURS, 9e6), (PEER, 4.4e6), (FLOOR, 12e9)]);
            mark_unfair_peers(&mut rows, &[peer_figure]);
            assert_eq!(rows.find(&PEER).unwrap().unfair, unfair);
        }
    }

    #[test]
    fn comparison_is_unfair_without_a_baseline_measurement() {
        let mut rows = rows(&[(OURS, 5e6), (PEER, 9e6)]);
        mark_unfair_peers(&mut rows, &[PEER_FIGURE]);
        assert!(rows.find(&PEER).unwrap().unfair);
    }

    #[test]
    fn improvement_factor_is_computed_for_latencies_and_rates() {
        let latency = RowPattern { metric: "p50_ns", ..OURS };
        assert_eq!(PeerClaim { title: "", figure: 800.0, ours: latency }.times_better(200.0), 4.0);
        assert_eq!(PeerClaim { title: "", figure: 4e5, ours: OURS }.times_better(8e5), 2.0);
    }
}
