//! Converts raw bytes into values (IPMI 2.0, sections 36.3 to 36.5):
//! `y = L[(M·x + B·10^K1)·10^K2]`.

/// The number format of raw bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnalogFormat {
    /// 0 to 255.
    Unsigned,
    /// −127 to 127, with two zeros.
    OnesComplement,
    /// −128 to 127.
    TwosComplement,
}

impl AnalogFormat {
    /// From the top two bits of the units byte; `None` for sensors without analog readings.
    pub fn from_bits(bits: u8) -> Option<Self> {
        match bits & 0b11 {
            0 => Some(Self::Unsigned),
            1 => Some(Self::OnesComplement),
            2 => Some(Self::TwosComplement),
            _ => None,
        }
    }

    /// The number of a raw byte.
    pub fn number(self, raw: u8) -> i16 {
        match self {
            Self::Unsigned => i16::from(raw),
            Self::TwosComplement => i16::from(raw.cast_signed()),
            Self::OnesComplement if raw & 0x80 == 0 => i16::from(raw),
            Self::OnesComplement => -i16::from(!raw),
        }
    }
}

/// The function L of the formula.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the functions")]
pub enum Linearization {
    Linear,
    Ln,
    Log10,
    Log2,
    Exp,
    Exp10,
    Exp2,
    Reciprocal,
    Square,
    Cube,
    SquareRoot,
    CubeRoot,
    /// The factors depend on the reading. The BMC returns them (Get Sensor Reading Factors), and
    /// the result is linear.
    PerReading,
}

impl Linearization {
    /// From the seven bits of the record. Reserved codes count as per reading: the BMC returns the
    /// factors or refuses.
    pub fn from_code(code: u8) -> Self {
        match code & 0x7F {
            0x00 => Self::Linear,
            0x01 => Self::Ln,
            0x02 => Self::Log10,
            0x03 => Self::Log2,
            0x04 => Self::Exp,
            0x05 => Self::Exp10,
            0x06 => Self::Exp2,
            0x07 => Self::Reciprocal,
            0x08 => Self::Square,
            0x09 => Self::Cube,
            0x0A => Self::SquareRoot,
            0x0B => Self::CubeRoot,
            _ => Self::PerReading,
        }
    }

    fn apply(self, y: f64) -> f64 {
        match self {
            Self::Linear | Self::PerReading => y,
            Self::Ln => y.ln(),
            Self::Log10 => y.log10(),
            Self::Log2 => y.log2(),
            Self::Exp => y.exp(),
            Self::Exp10 => 10_f64.powf(y),
            Self::Exp2 => y.exp2(),
            Self::Reciprocal => y.recip(),
            Self::Square => y * y,
            Self::Cube => y * y * y,
            Self::SquareRoot => y.sqrt(),
            Self::CubeRoot => y.cbrt(),
        }
    }
}

/// The parameters of the formula.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Factors {
    /// Number format of raw bytes.
    pub format: AnalogFormat,
    /// L.
    pub linearization: Linearization,
    /// M, −512 to 511.
    pub m: i16,
    /// B, −512 to 511.
    pub b: i16,
    /// K1, the exponent of B, −8 to 7.
    pub b_exponent: i8,
    /// K2, the exponent of the result, −8 to 7.
    pub result_exponent: i8,
}

/// A number of ten bits, two's complement, whose upper two bits are bits 7 and 6 of `high`.
fn ten_bits(low: u8, high: u8) -> i16 {
    let unsigned = u16::from(low) | (u16::from(high & 0xC0) << 2);
    (unsigned << 6).cast_signed() >> 6
}

fn nibble(bits: u8) -> i8 {
    (bits << 4).cast_signed() >> 4
}

impl Factors {
    /// From bytes 23 to 29 of a full record: linearization, M, M and tolerance, B, B and accuracy,
    /// accuracy, exponents.
    pub fn from_record(format: AnalogFormat, bytes: [u8; 7]) -> Self {
        let [linearization, m, m_high, b, b_high, _, exponents] = bytes;
        Self {
            format,
            linearization: Linearization::from_code(linearization),
            m: ten_bits(m, m_high),
            b: ten_bits(b, b_high),
            b_exponent: nibble(exponents & 0x0F),
            result_exponent: nibble(exponents >> 4),
        }
    }

    /// The factors of one reading (answer to Get Sensor Reading Factors without its first byte), in
    /// the same number format.
    #[must_use]
    pub fn with_reading_factors(self, bytes: [u8; 6]) -> Self {
        let [m, m_high, b, b_high, accuracy, exponents] = bytes;
        let record = [0, m, m_high, b, b_high, accuracy, exponents];
        Self::from_record(self.format, record)
    }

    /// The value of a raw byte; `None` without a finite result (a tachometer period of 0, the
    /// logarithm of 0).
    pub fn value(&self, raw: u8) -> Option<f64> {
        self.at(f64::from(self.format.number(raw)))
    }

    fn at(&self, x: f64) -> Option<f64> {
        let inner = f64::from(self.m) * x + f64::from(self.b) * 10_f64.powi(self.b_exponent.into());
        let y = self.linearization.apply(inner * 10_f64.powi(self.result_exponent.into()));
        y.is_finite().then_some(y)
    }

    /// Whether the value falls while the raw number rises; `None` without a finite result.
    pub fn falls_at(&self, raw: u8) -> Option<bool> {
        let x = f64::from(self.format.number(raw));
        Some(self.at(x + 1.0)? < self.at(x)?)
    }

    /// The change of the value if the raw number changes by `steps` at this reading.
    pub fn span(&self, raw: u8, steps: u8) -> f64 {
        let x = f64::from(self.format.number(raw));
        match (self.at(x), self.at(x + f64::from(steps))) {
            (Some(here), Some(there)) => (there - here).abs(),
            _ => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn factors(format: AnalogFormat, code: u8, m: i16, b: i16, k1: i8, k2: i8) -> Factors {
        Factors {
            format,
            linearization: Linearization::from_code(code),
            m,
            b,
            b_exponent: k1,
            result_exponent: k2,
        }
    }

    #[track_caller]
    fn near(value: Option<f64>, expected: f64) {
        let value = value.expect("a finite value");
        assert!((value - expected).abs() < 1e-6 * expected.abs().max(1.0), "{value} != {expected}");
    }

    #[test]
    fn raw_bytes_are_converted_in_every_format() {
        assert_eq!(AnalogFormat::Unsigned.number(0xD8), 216);
        assert_eq!(AnalogFormat::TwosComplement.number(0xD8), -40);
        assert_eq!(AnalogFormat::OnesComplement.number(0xD8), -39);
        assert_eq!(AnalogFormat::OnesComplement.number(0xFF), 0);
        assert_eq!(AnalogFormat::OnesComplement.number(0x7F), 127);
        assert_eq!(AnalogFormat::from_bits(3), None);
    }

    #[test]
    fn negative_multipliers_and_exponents_keep_their_sign() {
        // M = −1 is 3FFh in ten bits, B = −128 is 380h, K2 = −2, K1 = 1.
        let bytes = [0, 0xFF, 0xC0, 0x80, 0xC0, 0, 0xE1];
        let parsed = Factors::from_record(AnalogFormat::Unsigned, bytes);
        assert_eq!((parsed.m, parsed.b), (-1, -128));
        assert_eq!((parsed.b_exponent, parsed.result_exponent), (1, -2));
        near(parsed.value(20), -13.0);
        // 511 and −512 are the ends of the range.
        assert_eq!(ten_bits(0xFF, 0x40), 511);
        assert_eq!(ten_bits(0x00, 0x80), -512);
    }

    #[test]
    fn every_linearization_code_has_its_function() {
        let at = |code, raw| factors(AnalogFormat::Unsigned, code, 1, 0, 0, 0).value(raw);
        near(at(0x00, 9), 9.0);
        near(at(0x01, 9), 2.197_224_577);
        near(at(0x02, 100), 2.0);
        near(at(0x03, 8), 3.0);
        near(at(0x04, 2), 7.389_056_099);
        near(at(0x05, 3), 1000.0);
        near(at(0x06, 5), 32.0);
        near(at(0x07, 4), 0.25);
        near(at(0x08, 9), 81.0);
        near(at(0x09, 3), 27.0);
        near(at(0x0A, 9), 3.0);
        near(at(0x0B, 27), 3.0);
        assert_eq!(Linearization::from_code(0x70), Linearization::PerReading);
        assert_eq!(at(0x07, 0), None);
        assert_eq!(at(0x01, 0), None);
    }

    #[test]
    fn the_value_of_a_period_counter_falls_while_its_raw_number_rises() {
        let tach = factors(AnalogFormat::Unsigned, 0x07, 1, 0, 0, -5);
        near(tach.value(25), 4000.0);
        assert_eq!((tach.falls_at(25), tach.falls_at(0)), (Some(true), None));
        assert_eq!(factors(AnalogFormat::Unsigned, 0, 66, 0, 0, 0).falls_at(25), Some(false));
        let negative = factors(AnalogFormat::TwosComplement, 0, -1, 0, 0, 0);
        assert_eq!(negative.falls_at(0xFF), Some(true));
        assert!((factors(AnalogFormat::Unsigned, 0, 66, 0, 0, 0).span(30, 2) - 132.0).abs() < 1e-9);
    }

    #[test]
    fn factors_of_one_reading_replace_those_of_the_record() {
        let record = factors(AnalogFormat::Unsigned, 0x70, 0, 0, 0, 0);
        let asked = record.with_reading_factors([10, 0, 5, 0, 0, 0xF0]);
        near(asked.value(4), 4.5);
    }
}
