//! Whether two series of windows differ by more than chance.
//!
//! Windows are not independent observations: programs have phases, and bursts are rare. So the
//! means of blocks of 1, 2, 4, ... windows are compared, down to 16 blocks a side, and the block
//! length with the least evidence counts. The test at each length is Welch's (Biometrika 34, 1947,
//! 28-35) on the means of blocks (nonoverlapping batch means: Schmeiser, Operations Research 30,
//! 1982, 556-568). Three things make the standard error larger. First, the values' own intervals.
//! Second, the correlation r of neighbouring blocks, estimated from both sides: n blocks count as n
//! (1 - r) / (1 + r) independent ones (Bayley and Hammersley, JRSS Supplement 8, 1946, 184-197).
//! Third, the side with fewer windows has at least the scatter of the other side.

use statrs::distribution::{ContinuousCDF as _, StudentsT};

/// Minimum number of windows of a side for a verdict. The scatter of fewer windows says nothing.
pub(crate) const MIN_WINDOWS: usize = 8;

/// Minimum number of blocks of several windows.
const MIN_BLOCKS: usize = 16;

/// Largest correlation that is corrected for: beyond it nothing is known about the mean.
const MAX_CORRELATION: f64 = 0.95;

/// Relative precision of [`DifferenceTest::allowed`].
const PRECISION: f64 = 1e-9;

/// The value of a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct WindowValue {
    pub(super) value: f64,
    /// The window's length.
    pub(super) seconds: f64,
    /// Standard error by the value's own interval; 0 without one.
    pub(super) error: f64,
}

/// The windows of one side.
#[derive(Clone, Debug)]
pub(super) struct WindowSeries {
    windows: Vec<WindowValue>,
    seconds: f64,
    /// Mean, weighted by window length.
    pub(super) mean: f64,
    /// Variance of the mean by the values' own intervals.
    pub(super) own_variance: f64,
}

/// Statistics of blocks of one length: what their scatter says about the mean.
struct BlockScatter {
    /// Deviations from the mean, weighted by length.
    deviations: Vec<f64>,
}

/// What the windows say about a difference.
#[derive(Clone, Debug, PartialEq)]
pub enum Evidence {
    /// A side has too few windows.
    TooFewWindows,
    /// All values of both sides are the same.
    Constant,
    /// The difference was tested.
    Tested(DifferenceTest),
}

/// A tested difference of means.
#[derive(Clone, Debug, PartialEq)]
pub struct DifferenceTest {
    /// Probability of a difference of this size or more by chance; 0 if both sides are constant
    /// ([`Self::is_certain`]).
    pub p: f64,
    /// Standard errors and degrees of freedom, by block length.
    errors: Vec<(f64, f64)>,
}

impl WindowSeries {
    /// None if the windows have no length together.
    pub(super) fn new(windows: Vec<WindowValue>) -> Option<Self> {
        let seconds: f64 = windows.iter().map(|window| window.seconds).sum();
        let first = windows.first().filter(|_| seconds > 0.0)?.value;
        let (mut offset, mut own_variance) = (0.0, 0.0);
        for window in &windows {
            let share = window.seconds / seconds;
            // Relative to the first value, so that the mean of equal values is exactly that value.
            offset += (window.value - first) * share;
            own_variance += (window.error * share).powi(2);
        }
        Some(Self {
            windows,
            seconds,
            mean: first + offset,
            own_variance,
        })
    }

    pub(super) fn len(&self) -> usize {
        self.windows.len()
    }

    /// The largest block length with enough blocks, in windows.
    fn max_length(&self) -> usize {
        (self.len() / MIN_BLOCKS).max(1)
    }

    /// Blocks of `length` windows, or slightly longer ones if `length` does not divide the number
    /// of windows.
    fn blocks(&self, length: usize) -> BlockScatter {
        let count = self.len() / length;
        let bounds = |at: usize| at * self.len() / count;
        let deviation = |at: usize| -> f64 {
            let block = &self.windows[bounds(at)..bounds(at + 1)];
            let deviations = block
                .iter()
                .map(|window| (window.value - self.mean) * window.seconds);
            deviations.sum::<f64>() / self.seconds * float(count)
        };
        BlockScatter {
            deviations: (0..count).map(deviation).collect(),
        }
    }
}

impl BlockScatter {
    fn count(&self) -> f64 {
        float(self.deviations.len())
    }

    fn squares(&self) -> f64 {
        self.deviations.iter().map(|it| it * it).sum()
    }

    /// Correlation of neighbours, without the bias of its estimate, which is too low by about
    /// (1 + 4 r) / n (Marriott and Pope, Biometrika 41, 1954, 390-402). None without scatter.
    fn correlation(&self) -> Option<f64> {
        let squares = self.squares();
        let products: f64 = { self.deviations.windows(2) }
            .map(|pair| pair[0] * pair[1])
            .sum();
        let estimate = products / squares;
        (squares > 0.0).then(|| estimate + (1.0 + 4.0 * estimate) / self.count())
    }

    /// Variance of the mean if neighbours were independent.
    fn variance(&self) -> f64 {
        self.squares() / (self.count() * (self.count() - 1.0))
    }
}

/// Correlation of neighbouring blocks, at least 0. Estimated from both sides together, since both
/// run the same program.
fn correlation(sides: &[BlockScatter; 2]) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    for side in sides {
        if let Some(correlation) = side.correlation() {
            sum += correlation * side.count();
            count += side.count();
        }
    }
    match count > 0.0 {
        true => (sum / count).clamp(0.0, MAX_CORRELATION),
        false => 0.0,
    }
}

/// Standard error of the difference of means and its degrees of freedom, by blocks of `length`
/// windows.
fn error_by_blocks(sides: [&WindowSeries; 2], length: usize) -> (f64, f64) {
    let blocks = sides.map(|side| side.blocks(length.min(side.max_length())));
    let correlation = correlation(&blocks);
    let stretch = (1.0 + correlation) / (1.0 - correlation);
    let mut variances = [0, 1].map(|at| blocks[at].variance() * stretch);
    // A few windows may have equal values by chance, above all of rare events. So the side with
    // fewer windows gets at least the scatter of the other side.
    for (at, other) in [(0, 1), (1, 0)] {
        if sides[at].len() < sides[other].len() {
            let of_other = variances[other] * sides[other].seconds / sides[at].seconds;
            variances[at] = variances[at].max(of_other);
        }
    }
    let total: f64 = [0, 1]
        .map(|at| variances[at] + sides[at].own_variance)
        .iter()
        .sum();
    let parts = [0, 1].map(|at| {
        let degrees = (blocks[at].count() / stretch - 1.0).max(1.0);
        variances[at].powi(2) / degrees
    });
    let squares: f64 = parts.iter().sum();
    let degrees = match squares > 0.0 {
        true => total.powi(2) / squares,
        false => f64::INFINITY,
    };
    (total.sqrt(), degrees)
}

/// Tests the difference of the means.
pub(super) fn test(a: &WindowSeries, b: &WindowSeries) -> Evidence {
    if a.len().min(b.len()) < MIN_WINDOWS {
        return Evidence::TooFewWindows;
    }
    let difference = (b.mean - a.mean).abs();
    let longest = a.max_length().max(b.max_length());
    let lengths = std::iter::successors(Some(1), |length| Some(length * 2));
    let errors: Vec<(f64, f64)> = lengths
        .take_while(|length| *length <= longest)
        .map(|length| error_by_blocks([a, b], length))
        .collect();
    if difference == 0.0 && errors.iter().all(|(error, _)| *error == 0.0) {
        return Evidence::Constant;
    }
    let mut test = DifferenceTest { p: 1.0, errors };
    test.p = test.probability(difference);
    Evidence::Tested(test)
}

impl DifferenceTest {
    /// Probability of a difference of this size or more by chance, the largest of all block
    /// lengths.
    fn probability(&self, difference: f64) -> f64 {
        let all = self.errors.iter();
        all.map(|(error, degrees)| probability(difference, *error, *degrees))
            .fold(0.0, f64::max)
    }

    /// Whether the values of both sides never change, so that the difference is certain. Its `p` is
    /// then no result of a test.
    #[must_use]
    pub fn is_certain(&self) -> bool {
        self.standard_error() == 0.0
    }

    /// Largest difference by chance, at this level of `p`. By bisection, since the quantile
    /// function of statrs does not end for some levels.
    #[must_use]
    pub fn allowed(&self, level: f64) -> f64 {
        let (mut low, mut high) = (0.0, self.standard_error());
        while self.probability(high) > level && high > 0.0 {
            (low, high) = (high, 2.0 * high);
        }
        while high - low > PRECISION * high {
            let middle = low.midpoint(high);
            match self.probability(middle) > level {
                true => low = middle,
                false => high = middle,
            }
        }
        low
    }

    /// Standard error of the difference, the largest of all block lengths.
    #[must_use]
    pub fn standard_error(&self) -> f64 {
        let errors = self.errors.iter().map(|(error, _)| *error);
        errors.fold(0.0, f64::max)
    }
}

/// Probability of a difference of this size or more by chance. If the values of both sides never
/// change, any difference is certain.
fn probability(difference: f64, error: f64, degrees: f64) -> f64 {
    let student = StudentsT::new(0.0, 1.0, degrees).ok();
    match student.filter(|_| error > 0.0) {
        _ if difference == 0.0 => 1.0,
        Some(student) => 2.0 * student.sf(difference / error),
        None => 0.0,
    }
}

#[expect(clippy::cast_precision_loss, reason = "a number of windows")]
pub(super) fn float(count: usize) -> f64 {
    count as f64
}
