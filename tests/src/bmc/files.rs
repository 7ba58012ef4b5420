//! The files of the simulator: network, sensors, records, and one file for each value.

use super::analog::{Analog, FILE_POLL_MS, record_head};
use super::board::{
    ANALOG, DISCRETE, Discrete, EVENT_ONLY, ODD, ODD_STATES, REAR_FAN, SATELLITE, Setup,
};
use super::{PASSWORD, Ports, USER};
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::{fs, io};

/// Replaces the file at once, so that the simulator never reads half a value.
pub(super) fn write_value(path: &Path, value: i32) -> io::Result<()> {
    let temporary = path.with_extension("new");
    fs::write(&temporary, format!("{value}\n"))?;
    fs::rename(&temporary, path)
}

/// Writes all files into a folder; the values are in `val/` below it.
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
    if setup.has_event_only {
        records.push_str(&event_only_record());
    }
    if setup.satellite {
        write_value(&values.join(REAR_FAN.file), REAR_FAN.start)?;
        let _ =
            writeln!(emulation, "mc_add {SATELLITE} 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02");
        emulation.push_str(&REAR_FAN.emulation(SATELLITE, &values));
        let _ = writeln!(emulation, "mc_enable {SATELLITE}");
        records.push_str(&REAR_FAN.record(SATELLITE, true));
    }
    let mut lan = lan_conf(ports, setup.auths);
    if setup.has_power {
        let (power, program) = (values.join("power"), dir.join("power.sh"));
        write_value(&power, 1)?;
        let text =
            format!("#!/bin/sh\n[ \"$1\" = get ] && echo power:$(cat {})\n", power.display());
        fs::write(&program, text)?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
        let _ = writeln!(lan, "  chassis_control \"{}\"", program.display());
    }
    fs::write(dir.join("lan.conf"), lan)?;
    fs::write(dir.join("bmc.emu"), emulation)?;
    fs::write(dir.join("bmc.sdrs"), records)
}

fn lan_conf(Ports { host, lan, console, machine }: Ports, auths: &str) -> String {
    format!(
        "name \"testbmc\"\nset_working_mc 0x20\n  startlan 1\n    addr 127.0.0.{host} {lan}\n    \
         priv_limit admin\n    allowed_auths_callback {auths}\n    allowed_auths_user {auths}\n    \
         allowed_auths_operator {auths}\n    allowed_auths_admin {auths}\n    \
         guid a123456789abcdefa123456789abcdef\n  endlan\n  \
         serial 15 127.0.0.1 {machine} codec VM\n  startnow false\n  \
         user 1 false \"\" \"test\" user 10 {auths}\n  \
         user 2 true \"{USER}\" \"{PASSWORD}\" admin 10 {auths}\n  console 127.0.0.1 {console}\n"
    )
}

/// The sensors with states and their event/reading types.
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
            "sensor_add 0x20 0 {number} {kind} {reading_type} poll {FILE_POLL_MS} file \"{}\" \
             inits{states}",
            path.display()
        );
        let _ = writeln!(
            text,
            "sensor_set_event_support 0x20 0 {number} enable scanning per-state \
             {mask} {mask} {mask} {mask}"
        );
    }
    text.push_str("mc_enable 0x20\n");
    text
}

fn event_only_record() -> String {
    let (number, name) = EVENT_ONLY;
    format!(
        "sdr type 3\n sensor_owner_id 0x20\n sensor_owner_lun 0\n channel_number 0\n \
         sensor_number {number}\n entity_id processor\n entity_instance 2\n sensor_type 7\n \
         event_reading_type_code 0x6f\n id_string \"{name}\"\nendsdr\n"
    )
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
                " assert_event{state} true\n deassert_event{state} true\n \
                 event{state}_state_ret true\n"
            );
        }
        let _ = write!(text, " base_unit 0\n id_string \"{name}\"\nendsdr\n");
    }
    text
}
