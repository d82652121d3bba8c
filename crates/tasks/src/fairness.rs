//! How fair it is: shares of what there is, and how far from them people are.

/// What each may have of `capacity`, by weight, nobody more than it demands: what one does not want is shared among the others
/// (max-min fairness, by filling up; Bertsekas and Gallager 1992).
pub fn fair_shares(demands: &[f64], weights: &[f64], capacity: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..demands.len()).collect();
    order.sort_by(|&a, &b| (demands[a] / weights[a]).total_cmp(&(demands[b] / weights[b])));
    let mut left = capacity;
    let mut weight: f64 = weights.iter().sum();
    let mut shares = vec![0.0; demands.len()];
    for at in order {
        shares[at] = demands[at].min(left * weights[at] / weight);
        left -= shares[at];
        weight -= weights[at];
    }
    shares
}

/// Jain's index (Jain, Chiu and Hawe 1984): 1 where all have the same, 1/n where one has all.
pub fn index(values: &[f64]) -> f64 {
    let (sum, squares) = values.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    if squares == 0.0 { 1.0 } else { sum * sum / (values.len() as f64 * squares) }
}

/// Jain's index over what each has got ÷ what it should have: the least of what it demands and its weighted fair share of what all have
/// got. Who demands nothing does not count.
pub fn jain(got: &[f64], demands: &[f64], weights: &[f64]) -> f64 {
    let shares = fair_shares(demands, weights, got.iter().sum());
    let ratios: Vec<f64> =
        got.iter().zip(&shares).filter(|(_, share)| **share > 0.0).map(|(got, share)| got / share).collect();
    index(&ratios)
}

/// Deals workers' credit to the shards of a scheduler, which each have tenants of their own: each gets what its tenants' weights
/// and demands say, so that shares hold across shards. `shards` are of each the demands and weights of its tenants; the parts sum up to
/// `credit`, or to all that is demanded, and what cannot be divided goes to who is furthest below its share.
pub fn deal(credit: u64, shards: &[Vec<(f64, f64)>]) -> Vec<u64> {
    let tenants = || shards.iter().flatten();
    let demands: Vec<f64> = tenants().map(|(demand, _)| *demand).collect();
    let weights: Vec<f64> = tenants().map(|(_, weight)| *weight).collect();
    let shares = fair_shares(&demands, &weights, credit as f64);
    let mut shares = shares.iter();
    let due: Vec<f64> = shards.iter().map(|shard| shares.by_ref().take(shard.len()).sum()).collect();
    let mut dealt: Vec<u64> = due.iter().map(|due| due.floor() as u64).collect();
    let total = due.iter().sum::<f64>().round().min(credit as f64) as u64;
    let mut left = total.saturating_sub(dealt.iter().sum());
    let mut order: Vec<usize> = (0..shards.len()).collect();
    order.sort_by(|&a, &b| due[b].fract().total_cmp(&due[a].fract()));
    for at in order {
        let more = left.min(1);
        dealt[at] += more;
        left -= more;
    }
    dealt
}
