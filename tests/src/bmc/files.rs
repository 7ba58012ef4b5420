//! The files that the simulator is started with: its network, its sensors, their records, and one
//! file for the value of each.

use super::board::{
    ANALOG, Analog, DISCRETE, Discrete, Kind, ODD, ODD_STATES, REAR_FAN, SATELLITE, Setup,
};
use super::{PASSWORD, Ports, USER};
use std::fmt::Write as _;
use std::path::Path;
use std::{fs, io};

/// How often the simulator looks at the files of its values.
const FILE_POLL_MS: u32 = 100;

/// Replaced at once, so that the simulator never reads half a value.
pub(super) fn write_value(path: &Path, value: i32) -> io::Result<()> {
    let temporary = path.with_extension("new");
    fs::write(&temporary, format!("{value}\n"))?;
    fs::rename(&temporary, path)
}

/// Writes them all into a folder; the values are in `val/` below it.
pub(super) fn write(dir: &Path, ports: Ports, setup: Setup) -> io::Result<()> {
    let values = dir.join("val");
    fs::create_dir(&values)?;
    for sensor in &ANALOG {
        write_value(&values.join(sensor.file), sensor.start)?;
    }
    let odd: &[Analog] = if setup.is_odd { &ODD } else { &[] };
    for sensor in odd {
        write_value(&values.join(sensor.file), sensor.start)?;
    }
    let states = discrete(setup);
    for ((_, _, file, states, ..), _) in &states {
        write_value(&values.join(file), i32::from(*states))?;
    }
    let mut emulation = emulation(&values, odd, &states, setup.log_entries);
    let mut records = records(odd, &states);
    if setup.satellite {
        write_value(&values.join(REAR_FAN.file), REAR_FAN.start)?;
        let _ =
            writeln!(emulation, "mc_add {SATELLITE} 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02");
        emulation.push_str(&REAR_FAN.emulation(SATELLITE, &values));
        let _ = writeln!(emulation, "mc_enable {SATELLITE}");
        records.push_str(&REAR_FAN.record(SATELLITE, true));
    }
    fs::write(dir.join("lan.conf"), lan_conf(ports, setup.auths))?;
    fs::write(dir.join("bmc.emu"), emulation)?;
    fs::write(dir.join("bmc.sdrs"), records)
}

fn lan_conf(Ports { host, lan, console, machine }: Ports, auths: &str) -> String {
    format!(
        "name \"testbmc\"\nset_working_mc 0x20\n  startlan 1\n    addr 127.0.0.{host} {lan}\n    \
         priv_limit admin\n    allowed_auths_callback {auths}\n    allowed_auths_user {auths}\n    \
         allowed_auths_operator {auths}\n    allowed_auths_admin {auths}\n    \
         guid a123456789abcdefa123456789abcdef\n  endlan\n  serial 15 127.0.0.1 {machine} codec VM\n  \
         startnow false\n  user 1 false \"\" \"test\" user 10 {auths}\n  \
         user 2 true \"{USER}\" \"{PASSWORD}\" admin 10 {auths}\n  console 127.0.0.1 {console}\n"
    )
}

impl Analog {
    fn raw(&self, value: i32) -> i32 {
        match self.kind {
            Kind::OffsetMargin => value + 128,
            Kind::Margin => value & 0xFF,
            _ => value / self.step,
        }
    }

    /// How the simulator makes a raw reading of the file's value.
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

    fn has_thresholds(&self) -> bool {
        self.thresholds.iter().any(Option::is_some)
    }

    /// The six thresholds as (name in a record, suffix of its event, raw value), lowest bit first.
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

    fn emulation(&self, owner: u8, values: &Path) -> String {
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
        // Two events for each threshold, going low and going high; lower ones fire going low.
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
            "sensor_set_event_support {owner} 0 {number} enable scanning per-state {mask} {mask} {mask} {mask}"
        );
        text
    }

    /// `can_be_asked`: the BMC gives its thresholds; else only the record has them.
    fn record(&self, owner: u8, can_be_asked: bool) -> String {
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
        let access = if can_be_asked { "settable" } else { "no" };
        let mut text = record_head(1, owner, self.number, self.entity, self.instance);
        let _ = write!(
            text,
            " init_sensor_type true\n sensor_hysteresis settable\n sensor_threshold_access {access}\n \
             sensor_event_msg_ctrl per_state\n sensor_type {}\n event_reading_type_code 1\n",
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
            " analog_data_format {format}\n rate_unit none\n modifier_unit none\n percentage false\n \
             base_unit {unit}\n modifier_unit_code unspecified\n linearization {linearization}\n \
             m {factor}\n tolerance 0\n b {offset}\n accuracy 1\n accuracy_exp 0\n \
             sensor_direction input\n r_exp {exponent}\n b_exp 0\n sensor_maximum {maximum}\n \
             sensor_minimum {minimum}\n positive_hysteresis 1\n negative_hysteresis 1\n \
             id_string \"{}\"\nendsdr\n",
            self.name
        );
        text
    }
}

fn record_head(kind: u8, owner: u8, number: u8, entity: &str, instance: u8) -> String {
    format!(
        "sdr type {kind}\n sensor_owner_id {owner}\n sensor_owner_lun 0\n channel_number 0\n \
         sensor_number {number}\n entity_id {entity}\n entity_instance {instance}\n \
         init_scanning true\n init_events true\n default_event_gen_on true\n \
         default_sensor_scan_on true\n sensor_auto_rearm true\n"
    )
}

/// The sensors with states, each with its event/reading type.
fn discrete(setup: Setup) -> Vec<(Discrete, u8)> {
    let odd: &[_] = if setup.is_odd { &ODD_STATES } else { &[] };
    DISCRETE.iter().map(|sensor| (*sensor, 0x6F)).chain(odd.iter().copied()).collect()
}

fn emulation(values: &Path, odd: &[Analog], states: &[(Discrete, u8)], log_entries: u16) -> String {
    let mut text = format!(
        "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr\n\
         sel_enable 0x20 {log_entries} 0x0a\n",
    );
    for sensor in &ANALOG {
        text.push_str(&sensor.emulation(0x20, values));
    }
    for sensor in odd {
        let uncompared = Analog { thresholds: [None; 4], ..*sensor };
        text.push_str(&uncompared.emulation(0x20, values));
    }
    for ((number, _, file, states, kind, ..), reading_type) in states {
        let path = values.join(file);
        let mask = "000011111111111";
        let _ = writeln!(
            text,
            "sensor_add 0x20 0 {number} {kind} {reading_type} poll {FILE_POLL_MS} file \"{}\" inits{states}",
            path.display()
        );
        let _ = writeln!(
            text,
            "sensor_set_event_support 0x20 0 {number} enable scanning per-state {mask} {mask} {mask} {mask}"
        );
    }
    text.push_str("mc_enable 0x20\n");
    text
}

fn records(odd: &[Analog], states: &[(Discrete, u8)]) -> String {
    let mut text = String::from(
        "sdr type 18\n device_slave_address 0x20\n device_channel_number 0\n fru_inventory true\n \
         sel true\n sdr true\n sensor true\n entity_id system_board\n entity_instance 1\n \
         id_string \"TestBMC\"\nendsdr\n",
    );
    for sensor in &ANALOG {
        text.push_str(&sensor.record(0x20, sensor.has_thresholds()));
    }
    for sensor in odd {
        text.push_str(&sensor.record(0x20, false));
    }
    for ((number, name, _, _, kind, entity, instance), reading_type) in states {
        text.push_str(&record_head(2, 0x20, *number, entity, *instance));
        let _ = write!(
            text,
            " sensor_event_msg_ctrl per_state\n sensor_type {kind}\n \
             event_reading_type_code {reading_type}\n"
        );
        for state in 0..11 {
            let _ = write!(
                text,
                " assert_event{state} true\n deassert_event{state} true\n event{state}_state_ret true\n"
            );
        }
        let _ = write!(text, " base_unit 0\n id_string \"{name}\"\nendsdr\n");
    }
    text
}
