//! The events that programs of this project publish, by event space.

use super::EventEntry;

macro_rules! catalog {
    ($($space:literal by $publisher:literal {
        $($name:ident: $severity:literal, $payload:literal, $tags:literal, $cause:literal;)*
    })*) => {
        /// The names of all events, as constants.
        pub mod names {
            $($(#[doc = $cause] pub const $name: &str = stringify!($name);)*)*
        }

        /// All events.
        pub static EVENTS: &[EventEntry] = &[$($(EventEntry {
            space: $space,
            publisher: $publisher,
            name: names::$name,
            severity: $severity,
            payload: $payload,
            tags: $tags,
            cause: $cause,
        },)*)*];
    };
}

// Event: severity, payload ("": text for people), tags, cause.
catalog! {
    "ftb.agent" by "ftb-agent" {
        FTB_NODE_SUSPECT: "warning", "", "host rank",
            "A link to the host ended without Close, or was silent for `detection.silence`. A \
             verdict follows within seconds.";
        FTB_NODE_QUIET: "info", "", "host rank",
            "The host has been silent for most of `detection.silence` and has not answered a \
             probe: ftb-ipmi reads the power of its chassis.";
        FTB_NODE_DEAD: "fatal", "", "host rank votes",
            "The host answers none of at least two probes, or none and its BMC says that it is \
             off; tag `votes` names the probers.";
        FTB_AGENT_LOST: "error", "", "host rank votes",
            "The host answers, its agent does not.";
        FTB_NODE_UNREACHABLE: "error", "", "host rank votes",
            "Its parent does not reach the host, others do, or no other agent could probe it.";
        FTB_NODE_REACHABLE: "info", "", "host",
            "A host that was unreachable is watched by its agent again.";
        FTB_NODE_BACK: "info", "", "host rank?",
            "A host that was dead is in the tree again.";
        FTB_AGENT_BACK: "info", "", "host rank?",
            "An agent that was lost answers again.";
        FTB_AGENT_RESTARTED: "warning", "", "host rank",
            "Another incarnation of the agent is in the tree: it was started again.";
        FTB_TREE_REPARENTED: "info", "", "host parent from",
            "The agent has another parent.";
        FTB_AGENT_REFUSED: "warning", "", "host by",
            "An agent was rejected. Compare cluster, version, `members` and certificates. At most \
             once in 10 minutes for each host.";
        FTB_AGENT_ACCEPTED: "info", "", "host by?",
            "An agent that was rejected is a child of tag `by`, or has not asked it for 20 \
             minutes.";
        FTB_CLAIM_REFUSED: "warning", "", "host by about",
            "An agent sent an event or a report about a host that is not below it, offered a log \
             that cannot be, or raises the epoch again and again. Its key may be stolen: look at \
             the host. At most once in 10 minutes for each host.";
        FTB_MEMBERS_DIFFER: "warning", "", "host by",
            "Two agents have different member lists. Give both the same.";
        FTB_MEMBERS_AGREE: "info", "", "host by?",
            "Their member lists are the same again, or one has been below another agent for a \
             minute.";
        FTB_CLOCKS_DIFFER: "warning", "", "host by",
            "Two clocks are more than a minute apart. Check NTP.";
        FTB_CLOCKS_AGREE: "info", "", "host by?",
            "They have agreed for 30 seconds, or one agent has been below another for a minute.";
        FTB_AGENT_ENROLLED: "info", "", "host rank",
            "An agent that is in no member list got a rank. Look for a mistyped host name.";
        FTB_AGENT_RENUMBERED: "warning", "", "host from rank",
            "Two components gave one rank to two hosts: this agent got another one.";
        FTB_CONDITION: "info", "", "event? publisher_host? publisher_uid?",
            "An agent declares its watch, or repeats what a client states, in the event space of \
             the original, or states that it is unknown.";
        FTB_CONDITION_UNSET: "warning", "", "host component condition id count",
            "An event cleared a condition that was never stated. Check host, component and key.";
        FTB_CONDITIONS_FULL: "error", "", "dropped",
            "The table of conditions dropped rows. Clear conditions that no longer matter.";
        FTB_PUBLISHER_LIMITED: "warning", "", "client job_id uid pid",
            "Storm control or its user's budget limits a program. At most once a minute for each.";
        FTB_CERTIFICATE_EXPIRES: "warning, error", "", "host file until days",
            "The certificate of the agent, its CA or a revocation list ends within 30, 7 or 1 days \
             (ERROR). Renew it (`ftbctl ca issue`), install the files, and reload the agent.";
        FTB_CERTIFICATE_RENEWED: "info", "", "host",
            "No certificate and no revocation list of the agent ends within 30 days any more.";
        FTB_JOURNAL_FAILED: "fatal", "", "host reason",
            "The journal cannot be written. The log is in memory only.";
        FTB_JOURNAL_BACK: "info", "", "host",
            "The log is written to disk again.";
        FTB_JOURNAL_DAMAGED: "error", "", "host",
            "The journal had torn or flipped entries. What another agent has is copied from it.";
        FTB_JOURNAL_UNCLEAN: "warning", "", "host",
            "The agent or its host stopped without order: entries that were confirmed last may be \
             missing on this disk.";
    }
    "ftb.ipmi" by "ftb-ipmi" {
        FTB_IPMI_FANFAIL: "error", "host of the node", "node bmc sensor cause reading? cools?",
            "A fan is below its critical threshold, stands still, or is gone.";
        FTB_IPMI_OVERTEMP: "error", "host of the node", "node bmc sensor cause seconds_left?",
            "A temperature or margin is critical, or soon will be: tag `seconds_left_min`.";
        FTB_IPMI_NORMAL: "info", "host of the node", "node bmc previous",
            "The node has no fault. Before that it was `failing` or `unknown` (tag `previous`).";
        FTB_IPMI_SENSOR_CLEARED: "info", "host of the node", "node bmc sensor",
            "One fault is over. FTB_IPMI_NORMAL follows after the last one.";
        FTB_IPMI_PSUFAIL: "error", "host of the node", "node bmc sensor state",
            "A power supply failed, lost its input, or is gone.";
        FTB_IPMI_MEMERR: "error, warning", "host of the node", "node bmc sensor state count?",
            "A memory error. WARNING: it was corrected.";
        FTB_IPMI_VOLTAGE: "error", "host of the node", "node bmc sensor cause reading?",
            "A voltage is outside its critical thresholds.";
        FTB_IPMI_CPUFAIL: "fatal, error", "host of the node", "node bmc sensor state",
            "A processor reported an error. IERR, uncorrectable error, machine check: FATAL.";
        FTB_IPMI_CRITICAL_INTERRUPT: "error, fatal, warning", "host of the node",
            "node bmc sensor state",
            "An NMI, or an error of a bus or of PCI (states 9, 10: FATAL; 0, 7, 11: WARNING).";
        FTB_IPMI_SEL_FULL: "warning", "host of the node", "node bmc cause",
            "The event log of the BMC is full or drops entries. Run `ipmitool sel clear`.";
        FTB_IPMI_SEL_CLEARED: "info", "host of the node", "node bmc",
            "The event log of the BMC has room again.";
        FTB_IPMI_CHASSIS_OFF: "error", "host of the node", "node bmc",
            "The node is powered off. An agent that misses it declares it dead at once.";
        FTB_IPMI_CHASSIS_ON: "info", "host of the node", "node bmc",
            "The node is powered on: it was off before, or an agent misses it.";
        FTB_IPMI_BMC_LOST: "warning", "host of the node", "node bmc reason",
            "The BMC is silent: the watch over the node is unknown. Check address, user, password.";
        FTB_IPMI_BMC_BACK: "info", "host of the node", "node bmc",
            "The BMC answers again. Faults or FTB_IPMI_NORMAL follow.";
        FTB_IPMI_CONTROLLER_LOST: "warning", "host of the node", "node bmc controller",
            "A controller behind the BMC is silent.";
        FTB_IPMI_CONTROLLER_BACK: "info", "host of the node", "node bmc controller",
            "A controller behind the BMC answers again.";
    }
    "ftb.ib" by "ftb-ib" {
        FTB_IB_ADAPTER_AVAILABLE: "info", "`NUM_ADAPTERS:<n>`", "adapters",
            "Adapters are present, or one more.";
        FTB_IB_ADAPTER_UNAVAILABLE: "warning", "nothing", "",
            "The node has no adapter.";
        FTB_IB_ADAPTER_INFO: "info", "`A::NAME:<name>::PORTS:<p>`", "adapter ports guid was?",
            "A new adapter. With tag `was=removed` it was away and is back.";
        FTB_IB_PORT_INFO: "info", "`A::P::STATE:<s>`", "adapter port state",
            "A new port, or another state that keeps its availability.";
        FTB_IB_PORT_ERR: "error", "`A::P`", "adapter port state neighbour?",
            "A port became unavailable. Check cable and switch.";
        FTB_IB_PORT_ACTIVE: "info", "`A::P`", "adapter port state neighbour?",
            "A port became available.";
        FTB_IB_EVENT_DEVICE_FATAL: "fatal", "`A`", "adapter",
            "The adapter failed. It is closed, can be reset, and is opened again. INFO in the \
             thesis.";
        FTB_IB_EVENT_LID_CHANGE: "info", "`A::P`", "adapter port lid",
            "A port has another local identifier.";
        FTB_IB_EVENT_PKEY_CHANGE: "info", "`A::P`", "adapter port",
            "The partition keys of a port changed.";
        FTB_IB_EVENT_SM_CHANGE: "info", "`A::P`", "adapter port sm_lid",
            "A port has another subnet manager.";
        FTB_IB_EVENT_CLIENT_REREGISTER: "info", "`A::P`", "adapter port",
            "The subnet manager asks all subscribers to register again.";
        FTB_IB_EVENT_GID_CHANGE: "info", "`A::P`", "adapter port",
            "The GID table of a port changed (Ethernet: an address came or went).";
        FTB_IB_EVENT_CQ_ERR: "error", "`A`", "adapter",
            "A completion queue overran.";
        FTB_IB_EVENT_QP_FATAL: "error", "`A`", "adapter",
            "A queue pair failed.";
        FTB_IB_EVENT_QP_REQ_ERR: "error", "`A`", "adapter",
            "A queue pair got an invalid request.";
        FTB_IB_EVENT_QP_ACCESS_ERR: "error", "`A`", "adapter",
            "A queue pair got a forbidden request.";
        FTB_IB_EVENT_COMM_EST: "info", "`A`", "adapter",
            "A queue pair got data before its connection was confirmed.";
        FTB_IB_EVENT_SQ_DRAINED: "info", "`A`", "adapter",
            "A send queue drained.";
        FTB_IB_EVENT_PATH_MIG: "warning", "`A`", "adapter",
            "A connection moved to its alternate path.";
        FTB_IB_EVENT_PATH_MIG_ERR: "error", "`A`", "adapter",
            "A connection could not move to its alternate path.";
        FTB_IB_EVENT_SRQ_ERR: "error", "`A`", "adapter",
            "A shared receive queue failed.";
        FTB_IB_EVENT_SRQ_LIMIT_REACHED: "info", "`A`", "adapter",
            "A shared receive queue runs low.";
        FTB_IB_EVENT_QP_LAST_WQE_REACHED: "info", "`A`", "adapter",
            "A queue pair took its last entry from a shared receive queue.";
        FTB_IB_EVENT_WQ_FATAL: "error", "`A`", "adapter",
            "A work queue failed.";
        FTB_IB_EVENT_UNKNOWN: "warning", "`A::EVENT:<number>`", "adapter number",
            "Verbs reported an unknown number.";
        FTB_IB_ADAPTER_REMOVED: "warning", "`A::NAME:<name>`", "adapter guid",
            "An adapter went away.";
        FTB_IB_PORT_FLAPPING: "warning", "`A::P::FLAPS:<n>`", "adapter port flaps",
            "A port went up and down several times within the debounce time.";
        FTB_IB_PORT_STEADY: "info", "`A::P`", "adapter port",
            "A port that flapped has not changed for 30 debounce times.";
        FTB_IB_PORT_DEGRADED: "warning", "`A::P::C`", "adapter port counter rate_per_minute",
            "An error counter rises too fast: the link may fail.";
        FTB_IB_PORT_RECOVERED: "info", "`A::P::C`", "adapter port counter was",
            "A counter of a degraded or congested port is below half of its limit.";
        FTB_IB_PORT_CONGESTED: "warning", "`A::P::C`", "adapter port counter rate_per_minute",
            "A port waits too much for its neighbour.";
    }
    "ftb.act" by "ftb-act" {
        FTB_ACT_OUT_OF_SERVICE: "error", "", "node",
            "A rule takes a host out of service: ftb-slurm drains its node.";
        FTB_ACT_IN_SERVICE: "info", "", "node",
            "The cause is over: the host is in service again.";
        FTB_ACT_DONE: "info", "host list", "order rule action group result",
            "A program or web request of a rule has succeeded.";
        FTB_ACT_FAILED: "error", "host list", "order rule action group result",
            "A program or web request of a rule has failed, or a crash of ftb-act interrupted it.";
        FTB_ACT_BREAKER: "error", "", "",
            "So much fails at once that ftb-act changes no host. Look for what they have in \
             common, then `ftb-act resume`.";
        FTB_ACT_RESUME: "info", "", "",
            "A person has closed the breaker: what it refused passes once.";
        FTB_ACT_PAGE_FAILED: "error", "", "rule",
            "A web server has not taken a request of the rule for a minute, or it was given up.";
        FTB_ACT_PAGE_SENT: "info", "", "rule",
            "A web server has taken a request of the rule again.";
        FTB_ACT_WATCHING: "info", "", "",
            "ftb-act has started and has read the table of conditions.";
    }
    "ftb.silence" by "ftbctl" {
        FTB_SILENCE_BEGIN: "info", "hosts, key (*: all), later begin, end (Unix ms), reason", "",
            "Maintenance begins (`ftbctl silence add`): ftb-act and ftb-slurm do nothing about the \
             hosts. Jobs still leave failing nodes.";
        FTB_SILENCE_END: "info", "", "",
            "Maintenance ends: by hand, or it was over.";
    }
    "ftb.slurm" by "ftb-slurm" {
        FTB_SLURM_DRAINED: "warning", "host list", "reason? user?",
            "Nodes of Slurm are drained, or for another reason: by a person, or by the bridge \
             (reason `ftb:…`).";
        FTB_SLURM_RESUMED: "info", "host list", "",
            "Nodes are drained no more.";
        FTB_SLURM_DOWN: "warning", "host list", "reason?",
            "Slurm has declared nodes down.";
        FTB_SLURM_UP: "info", "host list", "",
            "Nodes are down no more.";
        FTB_SLURM_LIMITED: "error", "host list", "",
            "Conditions would drain these nodes, but the bridge has drained as many as \
             `drained_percent_max` allows. Look at what they have in common.";
        FTB_SLURM_WATCHING: "info", "", "",
            "The bridge has started and has read the nodes of Slurm.";
        FTB_SLURM_REACHABLE: "info", "", "",
            "The bridge can read the nodes of Slurm again.";
        FTB_SLURM_UNREACHABLE: "error", "", "",
            "The bridge cannot read the nodes of Slurm, so it drains and resumes none. Look at \
             slurmctld and `journalctl -u ftb-slurm`.";
        FTB_SLURM_REFUSED: "error", "host list", "order problem",
            "Slurm refuses to drain or resume these nodes (tag `order`); the others go on. Tag \
             `problem` is its answer. The bridge tries again at each reading.";
        FTB_SLURM_OBEYED: "info", "", "",
            "Slurm refuses no order of the bridge any more.";
    }
    "ftb.facility" by "ftb-bridge" {
        FTB_FACILITY_LEAK: "error", "the alarm", "node rack alarm_time alarm",
            "A leak at the rack of the node. Names and severities of ftb.facility are those of \
             `bridge.toml`; these are of its sample.";
        FTB_FACILITY_POWER: "error", "the alarm", "node rack alarm_time alarm",
            "The rack has lost a supply of power.";
        FTB_FACILITY_BREAKER: "error", "the alarm", "node rack alarm_time alarm",
            "A breaker of the rack has tripped.";
        FTB_FACILITY_CLEARED: "info", "the alarm", "node rack alarm_time alarm",
            "An alarm of the facility is over.";
        FTB_BRIDGE_WATCHING: "info", "", "",
            "ftb-bridge has started.";
        FTB_BRIDGE_REACHABLE: "info", "", "",
            "The bridge exports and imports again.";
        FTB_BRIDGE_UNREACHABLE: "error", "", "",
            "For a minute the bridge has not reached NATS, or has imported no waiting alarm. What \
             the log drops meanwhile is a gap of the stream. Look at `ftb-bridge status`.";
    }
    "ftb.drill" by "ftbctl" {
        FTB_DRILL: "info", "host of the node", "drill fault severity condition? node? from?",
            "A drill: launchers answer what they would do about the event in tag `fault`. No \
             fault: it states no condition, and nothing is done. In `ftb.job.drill` for an own \
             job.";
        FTB_DRILL_DONE: "info, error", "",
            "drill node result published_ms? committed_ms? delivered_ms? decided_ms? jobs",
            "A drill has ended (`ftbctl drill`). ERROR: a stage, or a launcher, did not answer, or \
             a launcher would refuse the fault.";
    }
    "ftb.jl.drill" by "ftb-launch" {
        FTB_DRILL_ANSWER: "info", "", "drill node? choice rule? target? braked?",
            "What the launcher would do about the fault of a drill. Nothing was done.";
    }
    "ftb.jl" by "ftb-launch" {
        FTB_JL_LAUNCH: "info", "`node01=0,1 node02=2,3`",
            "episode incarnation barrier size set? set_size?",
            "Start these ranks. `set`: restore them; `set_size`: how many ranks made the set.";
        FTB_JL_PREPARE: "info", "set id", "episode set",
            "Launch agents that save ranks stop them; after the last answer no rank sends.";
        FTB_CHECKPOINT: "info", "set id", "episode set loop?",
            "Every rank saves itself, or its launch agent does; `loop`: at this id of `ftb_loop`.";
        FTB_JL_RELEASE: "info", "nothing", "episode",
            "Undo FTB_JL_PREPARE.";
        FTB_MIGRATE: "warning", "source host", "episode source set ranks",
            "Phase I of a migration: the ranks of the source write images and leave.";
        FTB_MIGRATE_ABORT: "warning", "reason", "episode source",
            "Ranks that have not left the source stay.";
        FTB_JL_COPY: "info", "host", "episode target set ranks source?",
            "Fetch these images from `source`, or from the store. With pods it comes with \
             FTB_MIGRATE and follows the image.";
        FTB_MIGRATE_IPT: "info", "`TARGET r0 r1 ...`",
            "episode target ranks set incarnation barrier",
            "Phase II of a migration: the target starts the ranks. In a rollback, dead ranks \
             start.";
        FTB_JL_RESET: "warning", "reason", "episode barrier",
            "Every launch agent kills its ranks; a restart follows.";
        FTB_JL_ROLLBACK: "warning", "set id", "episode set ranks",
            "These ranks died; the others go back to the set in place.";
        FTB_JL_USABLE: "info", "host", "episode target",
            "An inactive node becomes a spare.";
        FTB_JL_EVICT: "warning", "host", "episode target",
            "A node counts as lost: its ranks are killed, its launch agent leaves.";
        FTB_JL_DROP: "info", "set id", "episode set",
            "Delete the images of the set.";
        FTB_JL_SIGNAL: "info", "number", "episode",
            "Deliver a signal to every rank.";
        FTB_JL_KILL: "info", "reason", "episode",
            "The job ends: SIGTERM, SIGKILL after the grace; launch agents leave.";
        FTB_JL_EPISODE: "info, warning", "",
            "episode kind outcome phases choice why fault? cause? rule? left_ms? \
             checkpoint_p95_ms? memory_p95_ms? migration_p95_ms?",
            "An episode is closed: what was chosen and why, for which fault (`cause`) by which \
             rule of the policy; `phases`: `leave=12 copy=30` in milliseconds. `left_ms`: time \
             before a predicted failure when its remedy was chosen, by these durations.";
        FTB_JL_HUNG: "warning", "", "episode kind node? rank? incarnation? pid? kill?",
            "A rank is hung, or all are; `kind`: `stopped`, `debugger`, `unread`, `io`, `steps`, \
             `peers`, `all`. `on_hang` of the policy says what follows.";
        FTB_JL_HANG_OVER: "info", "", "episode kind node? rank? incarnation? pid?",
            "The rank makes progress again, or was restarted.";
        FTB_JL_WAITING: "warning", "", "episode node since_ns until_ns",
            "The job has no node for the ranks of `node` and waits for one (`--wait-for-nodes`).";
        FTB_JL_REPAIR: "info", "JSON", "episode",
            "With `--on-death continue`: dead ranks, revoked communicators, what was decided.";
        FTB_JL_ASK: "info", "nothing", "",
            "Launch agents report their state, an open barrier and each exit over the job \
             connection.";
        FTB_JL_ALIVE: "info", "nothing", "",
            "A launcher runs this job (every 2 s): another one of that name must not start.";
    }
    "ftb.nla" by "ftb-nla" {
        FTB_NLA_STATE: "info", "`from->to`", "episode node from state changes",
            "The state of a node in a job changed; `changes` counts all changes.";
        FTB_NLA_LAUNCHED: "info", "ranks", "episode node ranks incarnation",
            "Answer to FTB_JL_LAUNCH: the ranks run.";
        FTB_NLA_LAUNCH_FAILED: "error", "reason", "episode node ranks incarnation",
            "The start failed. With pods it may follow FTB_NLA_LAUNCHED.";
        FTB_NLA_PREPARED: "info", "nothing", "episode node loop?",
            "Answer to FTB_JL_PREPARE: the ranks are stopped; `loop`: can be saved at this id.";
        FTB_NLA_HUNG: "warning", "", "episode node rank incarnation job kind",
            "A rank of this host is hung. Only jobs of root state the condition.";
        FTB_NLA_HANG_OVER: "info", "", "episode node rank incarnation? job kind?",
            "The rank makes progress again, or has ended, alone or with its launch agent.";
        FTB_NLA_EXITED: "info, error", "`rank status`", "episode node ranks incarnation how",
            "A rank ended; `how`: `left` (image written), `exit N`, `signal N`.";
        FTB_MIGRATE_PIC: "info", "source host", "episode node source ranks set",
            "Phase I of a migration is complete: all ranks have left the source.";
        FTB_NLA_COPIED: "info", "set id", "episode node set ranks bytes",
            "Answer to FTB_JL_COPY: the images are here.";
        FTB_NLA_COPY_FAILED: "error", "reason", "episode node set ranks",
            "Answer to FTB_JL_COPY: the images did not come.";
        FTB_NLA_RESTARTED: "info", "ranks", "episode node ranks incarnation",
            "Answer to FTB_MIGRATE_IPT: the ranks run.";
        FTB_NLA_RESET: "info", "nothing", "episode node",
            "Answer to FTB_JL_RESET: no rank is left on the node.";
        FTB_NLA_STOPPED: "info", "nothing", "episode node",
            "Answer to FTB_JL_KILL: no rank is left on the node; the launch agent leaves.";
    }
    "ftb.mpi" by "ranks (ftb-job), ftb-nla" {
        FTB_MPI_SUSPENDED: "info", "rank", "episode rank us?",
            "The channels of a rank are drained and suspended.";
        FTB_MPI_RESUMED: "info", "rank", "episode rank us?",
            "A rank computes again.";
        FTB_CHECKPOINT_DONE: "info", "rank", "episode rank set bytes cpu_ms? sent?",
            "The image of a rank is complete; with pods also its activity.";
        FTB_CHECKPOINT_FAILED: "error", "rank", "episode rank set reason",
            "A rank is not saved. The set is void, the job goes on.";
        FTB_ROLLBACK_FAILED: "error", "rank", "episode rank set reason",
            "A rank cannot go back in place. All ranks start again from the set.";
        FTB_MPI_REPAIR: "info", "JSON", "episode rank",
            "A rank revokes, agrees, shrinks or ends. FTB_JL_REPAIR answers.";
        FTB_MPI_PROCS_UNREACHABLE: "error", "rank", "rank peer reason",
            "A rank does not reach a peer. If the peer is dead, its launch agent reports it.";
    }
    "ftb.job" by "ftb-launch" {
        FTB_JOB_REQUEST: "info", "`checkpoint`, `migrate NODE`, `drain NODE`, ...", "request",
            "A person or a program asks a running job for something; `request` is random.";
        FTB_JOB_ANSWER: "info, warning", "", "request outcome",
            "The answer: `accepted`, `done`, `refused` or `failed`.";
    }
    "ftb.mpi.mig_trigger" by "mv2_trigger of MVAPICH2" {
        FTB_MIGRATE_TRIGGER: "info", "host to leave", "",
            "A person or a program of MVAPICH2 wants the ranks to leave a host. It counts only \
             from the owner of the job or root.";
    }
}
