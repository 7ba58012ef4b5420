//! The conditions that programs of this project state.

use super::names;

/// One condition that a program states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConditionEntry {
    /// Its key.
    pub key: &'static str,
    /// What it is about.
    pub subject: &'static str,
    /// What it means while it holds, and what to do.
    pub meaning: &'static str,
    /// The recommended action.
    pub action: &'static str,
    /// The events that set it.
    pub set_by: &'static [&'static str],
    /// The events that clear it.
    pub cleared_by: &'static [&'static str],
}

/// What sensors of a BMC state: set by an event, cleared when the sensor is good again.
const fn sensor(
    key: &'static str,
    set_by: &'static [&'static str],
    action: &'static str,
    meaning: &'static str,
) -> ConditionEntry {
    let cleared_by = &[names::FTB_IPMI_SENSOR_CLEARED];
    ConditionEntry { key, subject: "a sensor of a host", meaning, action, set_by, cleared_by }
}

/// What the facility says about a rack.
const fn facility(
    key: &'static str,
    set_by: &'static [&'static str],
    action: &'static str,
    meaning: &'static str,
) -> ConditionEntry {
    let cleared_by = &[names::FTB_FACILITY_CLEARED];
    let subject = "a host, or a component of its rack";
    ConditionEntry { key, subject, meaning, action, set_by, cleared_by }
}

/// What an agent states about a host.
const fn host(
    key: &'static str,
    set_by: &'static [&'static str],
    cleared_by: &'static [&'static str],
    action: &'static str,
    meaning: &'static str,
) -> ConditionEntry {
    ConditionEntry { key, subject: "a host", meaning, action, set_by, cleared_by }
}

/// What an agent states about a host and itself.
const fn neighbours(
    key: &'static str,
    set_by: &'static [&'static str],
    cleared_by: &'static [&'static str],
    meaning: &'static str,
) -> ConditionEntry {
    let subject = "a host, and the agent that found it";
    ConditionEntry { key, subject, meaning, action: "watch", set_by, cleared_by }
}

/// What ftb-ib states about a port.
const fn port(
    key: &'static str,
    set_by: &'static [&'static str],
    cleared_by: &'static [&'static str],
    action: &'static str,
    meaning: &'static str,
) -> ConditionEntry {
    ConditionEntry { key, subject: "a port of an adapter", meaning, action, set_by, cleared_by }
}

/// All conditions, by publisher.
pub static CONDITIONS: &[ConditionEntry] = &[
    ConditionEntry {
        key: "WATCHED",
        subject: "a host, and the event space of its watcher",
        meaning: "A publisher watches the host. Without a watch a host is never healthy. Unknown: \
                  the watcher is lost, or its BMC is silent.",
        action: "none",
        set_by: &[
            names::FTB_CONDITION,
            names::FTB_IPMI_NORMAL,
            names::FTB_IB_ADAPTER_AVAILABLE,
            names::FTB_SLURM_WATCHING,
            names::FTB_ACT_WATCHING,
            names::FTB_BRIDGE_WATCHING,
        ],
        cleared_by: &[names::FTB_IB_ADAPTER_UNAVAILABLE],
    },
    host(
        "NODE_DEAD",
        &[names::FTB_NODE_DEAD],
        &[names::FTB_NODE_BACK],
        "replace",
        "No agent reaches the host. Check its power and its network.",
    ),
    host(
        "AGENT_LOST",
        &[names::FTB_AGENT_LOST],
        &[names::FTB_AGENT_BACK, names::FTB_AGENT_RESTARTED],
        "watch",
        "The host answers, its agent does not. Start ftb-agent there, and read the end of its log.",
    ),
    host(
        "NODE_UNREACHABLE",
        &[names::FTB_NODE_UNREACHABLE],
        &[names::FTB_NODE_REACHABLE],
        "watch",
        "Some agents reach the host and others do not, or none could probe it. Check the network.",
    ),
    neighbours(
        "AGENT_REFUSED",
        &[names::FTB_AGENT_REFUSED],
        &[names::FTB_AGENT_ACCEPTED],
        "The agent is rejected there. Compare cluster, version, `members` and certificates.",
    ),
    neighbours(
        "MEMBERS_DIFFER",
        &[names::FTB_MEMBERS_DIFFER],
        &[names::FTB_MEMBERS_AGREE],
        "The member lists of the two differ. Give both the same, and reload.",
    ),
    neighbours(
        "CLOCKS_DIFFER",
        &[names::FTB_CLOCKS_DIFFER],
        &[names::FTB_CLOCKS_AGREE],
        "The clocks of the two are more than a minute apart. Check NTP.",
    ),
    host(
        "JOURNAL_FAILED",
        &[names::FTB_JOURNAL_FAILED],
        &[names::FTB_JOURNAL_BACK],
        "replace",
        "The log is in memory only: a loss of power loses events. Check the disk of the journal.",
    ),
    host(
        "CERTIFICATE_EXPIRES",
        &[names::FTB_CERTIFICATE_EXPIRES],
        &[names::FTB_CERTIFICATE_RENEWED],
        "watch",
        "Soon no other agent accepts the certificate of this one. Renew it, and reload the agent.",
    ),
    sensor(
        "FANFAIL",
        &[names::FTB_IPMI_FANFAIL],
        "migrate",
        "A fan stands still, is too slow, or is gone. The node will overheat. Replace the fan.",
    ),
    sensor(
        "OVERTEMP",
        &[names::FTB_IPMI_OVERTEMP],
        "migrate",
        "A temperature is critical, or will soon be. The node throttles, then turns itself off.",
    ),
    sensor(
        "CPUFAIL",
        &[names::FTB_IPMI_CPUFAIL],
        "migrate",
        "A processor reported an error. It may compute wrong results. Replace it. An error that a \
         log entry alone reports (component: sensor, or `firmware 0x90`) stays until it is cleared \
         by hand.",
    ),
    sensor(
        "VOLTAGE",
        &[names::FTB_IPMI_VOLTAGE],
        "migrate",
        "A voltage is outside its critical thresholds. The node may compute wrong, or reset.",
    ),
    sensor(
        "PSUFAIL",
        &[names::FTB_IPMI_PSUFAIL],
        "replace",
        "A power supply failed. The node runs on the last one, without a reserve.",
    ),
    sensor(
        "MEMERR",
        &[names::FTB_IPMI_MEMERR],
        "replace",
        "Memory errors. Uncorrectable ones end or corrupt programs. Replace the module. An error \
         that a log entry alone reports (component: sensor, or `firmware 0x87`) stays until it is \
         cleared by hand.",
    ),
    sensor(
        "CRITICAL_INTERRUPT",
        &[names::FTB_IPMI_CRITICAL_INTERRUPT],
        "watch",
        "An NMI, or an error of a bus or of PCI. Read the event log of the BMC.",
    ),
    sensor("SENSOR", &[], "watch", "A sensor of another kind is bad. Its name says what it is."),
    ConditionEntry {
        key: "HARDWARE",
        subject: "a host",
        meaning: "A program of CIFTS FTB reported a failed fan or heat: the thesis has one state \
                  of a node.",
        action: "migrate",
        set_by: &[names::FTB_IPMI_FANFAIL, names::FTB_IPMI_OVERTEMP],
        cleared_by: &[names::FTB_IPMI_NORMAL],
    },
    ConditionEntry {
        key: "SEL_FULL",
        subject: "the BMC of a host",
        meaning: "The event log of the BMC is full, so new faults are not logged there. Run \
                  `ipmitool sel clear`.",
        action: "watch",
        set_by: &[names::FTB_IPMI_SEL_FULL],
        cleared_by: &[names::FTB_IPMI_SEL_CLEARED],
    },
    ConditionEntry {
        key: "CHASSIS_OFF",
        subject: "a host",
        meaning: "The BMC says that the host is powered off. An agent that misses the host \
                  declares it dead at once. Power it on, or find out who turned it off.",
        action: "reboot",
        set_by: &[names::FTB_IPMI_CHASSIS_OFF],
        cleared_by: &[names::FTB_IPMI_CHASSIS_ON],
    },
    ConditionEntry {
        key: "CONTROLLER_LOST",
        subject: "a controller behind the BMC of a host",
        meaning: "A controller answers no more: its sensors are not watched.",
        action: "none",
        set_by: &[names::FTB_IPMI_CONTROLLER_LOST],
        cleared_by: &[names::FTB_IPMI_CONTROLLER_BACK],
    },
    port(
        "PORT_ERR",
        &[names::FTB_IB_PORT_ERR],
        &[names::FTB_IB_PORT_ACTIVE, names::FTB_IB_PORT_INFO],
        "migrate",
        "The port carries no messages. Check cable and switch.",
    ),
    port(
        "PORT_FLAPPING",
        &[names::FTB_IB_PORT_FLAPPING],
        &[names::FTB_IB_PORT_STEADY],
        "watch",
        "The port goes up and down. Reseat or replace the cable.",
    ),
    port(
        "PORT_DEGRADED",
        &[names::FTB_IB_PORT_DEGRADED],
        &[names::FTB_IB_PORT_RECOVERED],
        "watch",
        "An error counter rises too fast: the link may fail. Reseat or replace the cable.",
    ),
    port(
        "PORT_CONGESTED",
        &[names::FTB_IB_PORT_CONGESTED],
        &[names::FTB_IB_PORT_RECOVERED],
        "watch",
        "The port waits for its neighbour. Look for a slow receiver behind that switch.",
    ),
    ConditionEntry {
        key: "ADAPTER_FAILED",
        subject: "an adapter",
        meaning: "The adapter failed or went away. Reset it; it is well when it comes back.",
        action: "reset-component",
        set_by: &[names::FTB_IB_EVENT_DEVICE_FATAL, names::FTB_IB_ADAPTER_REMOVED],
        cleared_by: &[names::FTB_IB_ADAPTER_INFO],
    },
    facility(
        "LEAK",
        &[names::FTB_FACILITY_LEAK],
        "migrate",
        "Liquid leaks at the rack of the host. Take the jobs away and look at once.",
    ),
    facility(
        "FACILITY_POWER",
        &[names::FTB_FACILITY_POWER],
        "migrate",
        "The rack of the host has lost a supply of power: no reserve is left, or the rack is off.",
    ),
    facility(
        "BREAKER",
        &[names::FTB_FACILITY_BREAKER],
        "watch",
        "A breaker of the rack of the host has tripped.",
    ),
    ConditionEntry {
        key: "HUNG",
        subject: "a rank of a job, on a host",
        meaning: "The rank makes no progress. Look at it with `ftb-launch status JOB` and a \
                  debugger, or let the launcher act (`on_hang`). Its host counts as healthy.",
        action: "restart-process",
        set_by: &[names::FTB_NLA_HUNG],
        cleared_by: &[names::FTB_NLA_HANG_OVER],
    },
    ConditionEntry {
        key: "SILENCED",
        subject: "the host where it was stated, and the id of the silence",
        meaning: "Maintenance of some hosts: ftb-act and ftb-slurm do nothing about them. See \
                  `ftbctl silence list`.",
        action: "none",
        set_by: &[names::FTB_SILENCE_BEGIN],
        cleared_by: &[names::FTB_SILENCE_END],
    },
    ConditionEntry {
        key: "OUT_OF_SERVICE",
        subject: "a host, and the rule and condition that took it out of service",
        meaning: "A rule of ftb-act has taken the host out of service. It returns when the cause \
                  is over, or a person clears this.",
        action: "migrate",
        set_by: &[names::FTB_ACT_OUT_OF_SERVICE],
        cleared_by: &[names::FTB_ACT_IN_SERVICE],
    },
    ConditionEntry {
        key: "BREAKER_OPEN",
        subject: "the ftb-act of a host",
        meaning: "ftb-act changes no host until a person has looked: `ftb-act status`, `ftb-act \
                  resume`.",
        action: "watch",
        set_by: &[names::FTB_ACT_BREAKER],
        cleared_by: &[names::FTB_ACT_RESUME],
    },
    ConditionEntry {
        key: "PAGE_FAILED",
        subject: "the ftb-act of a host, and a rule",
        meaning: "No web server takes the requests of the rule, so no person hears of its \
                  conditions by it: the message says why. It ends with the next request that is \
                  taken.",
        action: "watch",
        set_by: &[names::FTB_ACT_PAGE_FAILED],
        cleared_by: &[names::FTB_ACT_PAGE_SENT],
    },
    ConditionEntry {
        key: "SLURM_UNREACHABLE",
        subject: "the ftb-slurm of a host",
        meaning: "ftb-slurm cannot read the nodes of Slurm: it drains and resumes none. Look at \
                  slurmctld, and at `journalctl -u ftb-slurm` there.",
        action: "watch",
        set_by: &[names::FTB_SLURM_UNREACHABLE],
        cleared_by: &[names::FTB_SLURM_REACHABLE],
    },
    ConditionEntry {
        key: "SLURM_REFUSES",
        subject: "the ftb-slurm of a host",
        meaning: "Slurm refuses to drain or resume nodes, which the message names. Look at them \
                  with `scontrol show node`, or drain them by hand.",
        action: "watch",
        set_by: &[names::FTB_SLURM_REFUSED],
        cleared_by: &[names::FTB_SLURM_OBEYED],
    },
    ConditionEntry {
        key: "NATS_UNREACHABLE",
        subject: "the ftb-bridge of a host",
        meaning: "ftb-bridge does not reach NATS, or cannot import an alarm: the message says why. \
                  Look at `ftb-bridge status` and `journalctl -u ftb-bridge` there.",
        action: "watch",
        set_by: &[names::FTB_BRIDGE_UNREACHABLE],
        cleared_by: &[names::FTB_BRIDGE_REACHABLE],
    },
];
