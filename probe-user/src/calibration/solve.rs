//! Small systems of linear equations, at most as many equations as there are events.

/// The solution of `matrix * x = right`; `None` if the matrix is singular. Gaussian elimination
/// with scaled rows and the largest pivot.
pub(super) fn solve(matrix: &[Vec<f64>], right: &[f64]) -> Option<Vec<f64>> {
    let size = right.len();
    let mut rows: Vec<Vec<f64>> = (matrix.iter().zip(right))
        .map(|(row, right)| {
            let largest = row.iter().fold(0.0, |most: f64, it| most.max(it.abs()));
            (largest > 0.0).then(|| {
                let all = row.iter().chain([right]);
                all.map(|it| it / largest).collect()
            })
        })
        .collect::<Option<_>>()?;
    for at in 0..size {
        let pivot = (at..size).max_by(|a, b| rows[*a][at].abs().total_cmp(&rows[*b][at].abs()))?;
        rows.swap(at, pivot);
        if rows[at][at].abs() < 1e-9 {
            return None;
        }
        let (above, below) = rows.split_at_mut(at + 1);
        let pivot = &above[at];
        for row in below {
            let factor = row[at] / pivot[at];
            for (value, of_pivot) in row.iter_mut().zip(pivot) {
                *value -= factor * of_pivot;
            }
        }
    }
    let mut solution = vec![0.0; size];
    for at in (0..size).rev() {
        let known: f64 = (at + 1..size)
            .map(|other| rows[at][other] * solution[other])
            .sum();
        solution[at] = (rows[at][size] - known) / rows[at][at];
    }
    Some(solution)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::solve;

    #[test]
    fn singular_systems_have_no_solution() {
        assert_eq!(solve(&[vec![1.0, 2.0], vec![2.0, 4.0]], &[1.0, 2.0]), None);
        assert_eq!(solve(&[vec![0.0]], &[1.0]), None);
        assert_eq!(solve(&[], &[]), Some(Vec::new()));
        assert_eq!(
            solve(&[vec![0.0, 2.0], vec![4.0, 0.0]], &[6.0, 4.0]),
            Some(vec![1.0, 3.0])
        );
    }

    proptest! {
        #[test]
        fn a_solution_satisfies_its_equations(
            matrix in prop::collection::vec(prop::collection::vec(-1e3_f64..1e3, 4), 4),
            right in prop::collection::vec(-1e3_f64..1e3, 4),
        ) {
            if let Some(solution) = solve(&matrix, &right) {
                let size: f64 = solution.iter().map(|it| it.abs()).sum();
                for (row, right) in matrix.iter().zip(&right) {
                    let sum: f64 = row.iter().zip(&solution).map(|(a, x)| a * x).sum();
                    prop_assert!((sum - right).abs() <= 1e-6 * (1.0 + size * 1e3));
                }
            }
        }
    }
}
