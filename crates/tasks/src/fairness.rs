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
