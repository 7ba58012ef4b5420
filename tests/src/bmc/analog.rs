//! A simulated sensor with a value: its console commands and its record.

use std::fmt::Write as _;
use std::path::Path;

/// How often the simulator reads the value files.
pub(super) const FILE_POLL_MS: u32 = 100;

/// A sensor with a value.
pub(super) struct Analog {
    pub(super) number: u8,
    pub(super) name: &'static str,
    /// Name of the value file.
    pub(super) file: &'static str,
    /// Initial content of the file, in the unit of the file.
    pub(super) start: i32,
    pub(super) kind: Kind,
    pub(super) entity: &'static str,
    pub(super) instance: u8,
    /// Raw readings are the value of the file divided by this.
    pub(super) step: i32,
    /// Lower critical, lower non-critical, upper non-critical, upper critical, in the unit of the
    /// file.
    pub(super) thresholds: [Option<i32>; 4],
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    /// RPM; the file has RPM.
    Fan,
    /// RPM from the period; the file has the period in hundred-thousandths of a minute.
    Tachometer,
    /// Degrees.
    Temperature,
    /// Degrees, as two's complement.
    Margin,
    /// Degrees plus 128, as an unsigned byte.
    OffsetMargin,
    /// Volts; the file has millivolts.
    Voltage,
}

impl Analog {
    fn raw(&self, value: i32) -> i32 {
        match self.kind {
            Kind::OffsetMargin => value + 128,
            Kind::Margin => value & 0xFF,
            _ => value / self.step,
        }
    }

    /// Options for the conversion of the file value into a raw reading.
    fn poll_options(&self) -> String {
        match self.kind {
            Kind::OffsetMargin => "sub=-128".to_owned(),
            Kind::Margin => "mask=0xff".to_owned(),
            _ if self.step != 1 => format!("div={}", self.step),
            _ => String::new(),
        }
    }

    fn type_code(&self) -> u8 {
        match self.kind {
            Kind::Fan | Kind::Tachometer => 4,
            Kind::Temperature | Kind::Margin | Kind::OffsetMargin => 1,
            Kind::Voltage => 2,
        }
    }

    pub(super) fn has_thresholds(&self) -> bool {
        self.thresholds.iter().any(Option::is_some)
    }

    /// The six thresholds, lowest bit first: name in a record, suffix of the event, raw value.
    fn six(&self) -> [(&'static str, &'static str, Option<i32>); 6] {
        let [lc, lnc, unc, uc] = self.thresholds.map(|value| value.map(|value| self.raw(value)));
        [
            ("lnc", "gl", lnc),
            ("lc", "gl", lc),
            ("lnr", "gl", None),
            ("unc", "gh", unc),
            ("uc", "gh", uc),
            ("unr", "gh", None),
        ]
    }

    /// Console commands that add the sensor.
    pub(super) fn emulation(&self, owner: u8, values: &Path) -> String {
        let Self { number, file, .. } = self;
        let six = self.six();
        let mut text = format!(
            "sensor_add {owner} 0 {number} {} 1 poll {FILE_POLL_MS} file \"{}\" {}\n",
            self.type_code(),
            values.join(file).display(),
            self.poll_options()
        );
        if self.has_thresholds() {
            let enabled: String =
                six.iter().rev().map(|(_, _, raw)| if raw.is_some() { '1' } else { '0' }).collect();
            let raws: Vec<_> =
                six.iter().rev().map(|(_, _, raw)| raw.unwrap_or(0).to_string()).collect();
            let raws = raws.join(" ");
            let _ =
                writeln!(text, "sensor_set_threshold {owner} 0 {number} settable {enabled} {raws}");
        }
        // Two events for each threshold, going low and going high. Lower ones fire going low.
        let mut mask = 0_u16;
        for (bit, (_, direction, raw)) in six.iter().enumerate() {
            if raw.is_some() {
                mask |= 1 << (2 * bit + usize::from(*direction == "gh"));
            }
        }
        let mask = format!("{mask:015b}");
        let _ = writeln!(text, "sensor_set_hysteresis {owner} 0 {number} settable 1 1");
        let _ = writeln!(
            text,
            "sensor_set_event_support {owner} 0 {number} enable scanning per-state \
             {mask} {mask} {mask} {mask}"
        );
        text
    }

    /// The sensor record. Without `is_readable`, only the record has the thresholds.
    pub(super) fn record(&self, owner: u8, is_readable: bool) -> String {
        let (unit, exponent) = match self.kind {
            Kind::Fan => ("RPM", 0),
            Kind::Tachometer => ("RPM", -5),
            Kind::Voltage => ("Volts", -3),
            _ => ("degrees_C", 0),
        };
        let format = if self.kind == Kind::Margin { "2s_complement" } else { "unsigned" };
        let linearization = if self.kind == Kind::Tachometer { "1/x" } else { "linear" };
        let (factor, offset) = match self.kind {
            Kind::OffsetMargin => (1, -128),
            _ => (self.step, 0),
        };
        let (minimum, maximum) = if self.kind == Kind::Margin { (128, 127) } else { (0, 255) };
        let access = if is_readable { "settable" } else { "no" };
        let mut text = record_head(1, owner, self.number, self.entity, self.instance);
        let _ = write!(
            text,
            " init_sensor_type true\n sensor_hysteresis settable\n \
             sensor_threshold_access {access}\n sensor_event_msg_ctrl per_state\n \
             sensor_type {}\n event_reading_type_code 1\n",
            self.type_code()
        );
        for (name, direction, raw) in self.six() {
            if let Some(raw) = raw {
                let _ = write!(
                    text,
                    " return_{name} true\n assert_{name}{direction} true\n \
                     deassert_{name}{direction} true\n {name}_thrsh_settable true\n \
                     {name}_thrsh_readable true\n {name}_thresh {raw}\n"
                );
            }
        }
        let _ = write!(
            text,
            " analog_data_format {format}\n rate_unit none\n modifier_unit none\n \
             percentage false\n base_unit {unit}\n modifier_unit_code unspecified\n \
             linearization {linearization}\n \
             m {factor}\n tolerance 0\n b {offset}\n accuracy 1\n accuracy_exp 0\n \
             sensor_direction input\n r_exp {exponent}\n b_exp 0\n sensor_maximum {maximum}\n \
             sensor_minimum {minimum}\n positive_hysteresis 1\n negative_hysteresis 1\n \
             id_string \"{}\"\nendsdr\n",
            self.name
        );
        text
    }
}

/// The first lines of a record.
pub(super) fn record_head(kind: u8, owner: u8, number: u8, entity: &str, instance: u8) -> String {
    format!(
        "sdr type {kind}\n sensor_owner_id {owner}\n sensor_owner_lun 0\n channel_number 0\n \
         sensor_number {number}\n entity_id {entity}\n entity_instance {instance}\n \
         init_scanning true\n init_events true\n default_event_gen_on true\n \
         default_sensor_scan_on true\n sensor_auto_rearm true\n"
    )
}
