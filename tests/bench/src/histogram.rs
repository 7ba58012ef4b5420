//! Latencies in constant memory: buckets that grow with the value, 1.6 % wide.

/// Buckets for each power of two; half the reciprocal is the error.
const STEPS: u64 = 64;
const STEP_BITS: u32 = STEPS.trailing_zeros();
const BUCKETS: usize = (65 - STEP_BITS as usize) * STEPS as usize;

/// Counts of latencies, in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0, max: 0 }
    }
}

/// Values below `STEPS` have a bucket each; above, the top bits choose it.
fn bucket(value: u64) -> usize {
    let shift = (u64::BITS - value.leading_zeros()).saturating_sub(STEP_BITS + 1);
    let top = value >> shift;
    usize::try_from(u64::from(shift) * STEPS + top).unwrap_or(BUCKETS - 1).min(BUCKETS - 1)
}

/// The smallest value of a bucket.
fn value(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let shift = (bucket / STEPS).saturating_sub(1);
    (bucket - shift * STEPS) << shift
}

impl Histogram {
    /// Notes one latency.
    pub(crate) fn record(&mut self, ns: u64) {
        self.counts[bucket(ns)] += 1;
        self.total += 1;
        self.max = self.max.max(ns);
    }

    /// Adds what another one noted.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.total += other.total;
        self.max = self.max.max(other.max);
    }

    /// How many were noted.
    pub(crate) fn count(&self) -> u64 {
        self.total
    }

    /// The largest, in nanoseconds.
    pub(crate) fn max_ns(&self) -> u64 {
        self.max
    }

    /// The latency that the fraction `part` (0 to 1) does not exceed, in nanoseconds; 0 when
    /// nothing was noted.
    pub(crate) fn quantile_ns(&self, part: f64) -> u64 {
        let wanted = (part * self.total as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if *count > 0 && seen >= wanted {
                return value(bucket);
            }
        }
        self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_found_again_within_its_step() {
        for power in 0..63 {
            for value_ns in [1_u64 << power, (1 << power) + (1 << power) / 3, (2 << power) - 1] {
                let low = value(bucket(value_ns));
                assert!(low <= value_ns, "{value_ns} fell into the bucket from {low}");
                assert!(value_ns - low <= value_ns / STEPS, "{value_ns} is far from {low}");
            }
        }
        assert!(bucket(u64::MAX) < BUCKETS);
    }

    #[test]
    fn quantiles_of_a_ramp() {
        let mut ramp = Histogram::default();
        (1..=1000).for_each(|step| ramp.record(step * 1000));
        for (part, expected) in [(0.5, 500_000.0), (0.99, 990_000.0), (1.0, 1_000_000.0)] {
            let got = ramp.quantile_ns(part) as f64;
            assert!((got / expected - 1.0).abs() < 0.02, "{part}: {got} for {expected}");
        }
        assert_eq!(ramp.max_ns(), 1_000_000);
        assert_eq!(Histogram::default().quantile_ns(0.5), 0);
    }

    #[test]
    fn merging_adds() {
        let (mut one, mut two) = (Histogram::default(), Histogram::default());
        one.record(5);
        two.record(9);
        one.merge(&two);
        assert_eq!((one.count(), one.max_ns(), one.quantile_ns(0.5)), (2, 9, 5));
    }
}
