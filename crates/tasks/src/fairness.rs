//! Fair shares, and measures of fairness.

/// Divides `capacity` among tenants in proportion to their weights. No tenant receives more than its demand. Capacity
/// that a tenant leaves unused goes to the other tenants (max-min fairness by progressive filling; Bertsekas and
/// Gallager 1992).
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

/// Fairness index of Jain, Chiu and Hawe (1984): 1 if all values are equal, 1/n if a single one of n values is not 0.
pub fn jain_index(values: &[f64]) -> f64 {
    let (sum, squares) = values.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    if squares == 0.0 { 1.0 } else { sum * sum / (values.len() as f64 * squares) }
}

/// Fairness index of the quotients `got` ÷ fair share. [`fair_shares`] divides the total of `got` into the fair shares.
/// Entries whose fair share is 0 do not count.
pub fn jain(got: &[f64], demands: &[f64], weights: &[f64]) -> f64 {
    let shares = fair_shares(demands, weights, got.iter().sum());
    let ratios: Vec<f64> =
        got.iter().zip(&shares).filter(|(_, share)| **share > 0.0).map(|(got, share)| got / share).collect();
    jain_index(&ratios)
}
