//! The numbers that one place of a host name takes, as ranges.

/// Most digits of one number in a host name. All such numbers fit into `u64`.
pub(super) const DIGITS_MAX: usize = 18;

/// A number as a host name writes it: leading zeros count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Number {
    pub(super) digits: u8,
    pub(super) value: u64,
}

impl Number {
    /// Below all others; no name has it.
    pub(super) const NONE: Self = Self { digits: 0, value: 0 };

    /// Reads decimal digits. `None` if there is none, or more than [`DIGITS_MAX`].
    pub(super) fn read(text: &[u8]) -> Option<Self> {
        if text.is_empty() || text.len() > DIGITS_MAX {
            return None;
        }
        let value = text.iter().try_fold(0_u64, |value, byte| match byte {
            b'0'..=b'9' => Some(value * 10 + u64::from(byte - b'0')),
            _ => None,
        })?;
        Some(Self { digits: u8::try_from(text.len()).ok()?, value })
    }

    pub(super) fn write(self, out: &mut String) {
        use core::fmt::Write as _;
        let width = usize::from(self.digits);
        // Writing to a string cannot fail.
        let _ = write!(out, "{:0width$}", self.value);
    }
}

/// Neighbouring numbers of one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    digits: u8,
    first: u64,
    last: u64,
    /// How many numbers of the slot come before it.
    start: u32,
}

impl Range {
    pub(super) fn single(number: Number) -> Self {
        Self { digits: number.digits, first: number.value, last: number.value, start: 0 }
    }

    /// The ranges from one number to another, at most one for each length. Numbers are padded with
    /// zeros to `width` digits; longer ones stand as they are.
    pub(super) fn split(first: u64, last: u64, width: usize) -> Vec<Self> {
        let mut ranges = Vec::new();
        let mut next = first;
        for digits in width..=DIGITS_MAX {
            let longest = power(digits) - 1;
            if next > last {
                break;
            }
            if next <= longest {
                let digits = u8::try_from(digits).unwrap_or(u8::MAX);
                ranges.push(Self { digits, first: next, last: last.min(longest), start: 0 });
                next = longest + 1;
            }
        }
        ranges
    }

    /// The numbers of `self` with each of these digits before them.
    fn behind(self, left: Number) -> Self {
        let shift = left.value * power(usize::from(self.digits));
        let (first, last) = (shift + self.first, shift + self.last);
        Self { digits: self.digits + left.digits, first, last, start: 0 }
    }

    pub(super) fn digits(self) -> usize {
        usize::from(self.digits)
    }

    fn count(self) -> u64 {
        self.last - self.first + 1
    }

    /// The lowest and the highest number.
    pub(super) fn ends(self) -> (Number, Number) {
        let number = |value| Number { digits: self.digits, value };
        (number(self.first), number(self.last))
    }

    fn numbers(self) -> impl Iterator<Item = Number> {
        (self.first..=self.last).map(move |value| Number { digits: self.digits, value })
    }

    fn order(self) -> (u8, u64) {
        (self.digits, self.first)
    }

    /// Adds a range behind the others, or extends the last one.
    fn push_to(self, ranges: &mut Vec<Self>) {
        match ranges.last_mut() {
            Some(last) if last.digits == self.digits && last.last + 1 == self.first => {
                last.last = self.last;
            }
            _ => ranges.push(self),
        }
    }
}

/// The lowest number with one digit more. `digits` is at most [`DIGITS_MAX`].
fn power(digits: usize) -> u64 {
    10_u64.pow(u32::try_from(digits).unwrap_or(0))
}

/// More ranges than allowed.
pub(super) struct TooMany;

/// All numbers of `left` followed by all of `right`, the first of `left` first.
pub(super) fn concatenated(
    left: &[Range],
    right: &[Range],
    ranges_max: usize,
) -> Result<Vec<Range>, TooMany> {
    let mut ranges = Vec::new();
    for number in left.iter().flat_map(|range| range.numbers()) {
        for range in right {
            range.behind(number).push_to(&mut ranges);
        }
        if ranges.len() > ranges_max {
            return Err(TooMany);
        }
    }
    Ok(ranges)
}

/// The numbers that one place of a host name takes, in the order of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    ranges: Box<[Range]>,
    /// Places of the ranges, by number; empty where that is their order anyway.
    by_number: Box<[u32]>,
    count: u32,
}

impl Slot {
    /// `ranges` has at most `u32::MAX` numbers together.
    pub(super) fn new(ranges: Vec<Range>) -> Self {
        let mut merged = Vec::with_capacity(ranges.len());
        ranges.into_iter().for_each(|range| range.push_to(&mut merged));
        let mut start: u32 = 0;
        for range in &mut merged {
            range.start = start;
            start = start.saturating_add(u32::try_from(range.count()).unwrap_or(u32::MAX));
        }
        let mut by_number = Vec::new();
        if !merged.is_sorted_by_key(|range| range.order()) {
            by_number.extend((0..).take(merged.len()));
            by_number.sort_by_key(|place: &u32| merged[*place as usize].order());
        }
        Self { ranges: merged.into(), by_number: by_number.into(), count: start }
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// In the order of the list.
    pub(super) fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    pub(super) fn digits_max(&self) -> usize {
        self.ranges.iter().map(|range| range.digits()).max().unwrap_or(0)
    }

    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.ranges) + size_of_val(&*self.by_number)
    }

    fn nth_by_number(&self, place: usize) -> Option<&Range> {
        match self.by_number.get(place) {
            Some(place) => self.ranges.get(*place as usize),
            None => self.ranges.get(place),
        }
    }

    /// The place in order of number of the first range that ends at this number or above.
    fn from(&self, number: Number) -> usize {
        let (mut low, mut high) = (0, self.ranges.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.nth_by_number(middle) {
                Some(range) if range.ends().1 < number => low = middle + 1,
                _ => high = middle,
            }
        }
        low
    }

    /// How many numbers of the slot come before this one.
    pub(super) fn position(&self, number: Number) -> Option<u32> {
        let range = self.nth_by_number(self.from(number))?;
        let within = range.digits == number.digits && range.first <= number.value;
        let offset = || u32::try_from(number.value - range.first).ok();
        within.then(offset).flatten().map(|offset| range.start + offset)
    }

    /// The number at a position below [`Slot::count`].
    pub(super) fn at(&self, position: u32) -> Option<Number> {
        let place = self.ranges.partition_point(|range| range.start <= position);
        let range = self.ranges.get(place.checked_sub(1)?)?;
        let value = range.first + u64::from(position - range.start);
        Some(Number { digits: range.digits, value })
    }

    /// The ranges of numbers that are in both slots.
    fn shared<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = Range> + 'a {
        other.ranges.iter().flat_map(move |theirs| {
            let (low, high) = theirs.ends();
            let places = self.from(low)..self.ranges.len();
            let ours = places.map_while(move |place| {
                self.nth_by_number(place).filter(|ours| ours.ends().0 <= high)
            });
            ours.map(move |ours| Range {
                first: ours.first.max(theirs.first),
                last: ours.last.min(theirs.last),
                ..*theirs
            })
        })
    }

    /// How many numbers are in both slots.
    pub(super) fn shared_count(&self, other: &Self) -> u64 {
        self.shared(other).map(Range::count).sum()
    }

    /// A number that is in both slots.
    pub(super) fn shared_number(&self, other: &Self) -> Option<Number> {
        self.shared(other).next().map(|range| range.ends().0)
    }

    /// A number that is in the slot twice: its two positions.
    pub(super) fn repeated(&self) -> Option<(u32, u32)> {
        // By number, each range is compared with the one that reaches furthest of those before it.
        let mut furthest: Option<&Range> = None;
        for place in 0..self.ranges.len() {
            let range = self.nth_by_number(place)?;
            if let Some(before) = furthest.filter(|before| before.ends().1 >= range.ends().0) {
                let offset = u32::try_from(range.first - before.first).unwrap_or(u32::MAX);
                let (one, other) = (before.start.saturating_add(offset), range.start);
                return Some((one.min(other), one.max(other)));
            }
            furthest = Some(range);
        }
        None
    }

    /// The slot with the numbers of another one behind its own.
    pub(super) fn joined(&self, more: &Self) -> Self {
        Self::new([&*self.ranges, &*more.ranges].concat())
    }

    /// Writes the numbers as a host list does: `7`, or `[1-12,14]`.
    pub(super) fn write(&self, out: &mut String) {
        if self.count == 1 {
            self.ranges.iter().for_each(|range| range.ends().0.write(out));
            return;
        }
        out.push('[');
        let mut rest = self.ranges.iter().peekable();
        let mut is_first = true;
        while let Some(range) = rest.next() {
            if !std::mem::replace(&mut is_first, false) {
                out.push(',');
            }
            let (first, mut last) = range.ends();
            // 9-9 and 10-11 are one range, written 9-11.
            while last.value + 1 == power(last.digits.into())
                && let Some(next) = rest
                    .next_if(|next| next.first == last.value + 1 && next.digits == last.digits + 1)
            {
                last = next.ends().1;
            }
            first.write(out);
            if first != last {
                out.push('-');
                last.write(out);
            }
        }
        out.push(']');
    }
}
