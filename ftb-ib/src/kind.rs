//! The events of this publisher: names, default severities and numbers in verbs. The first ten are
//! those of the thesis' Appendix A; the others follow its style.

use ftb_core::Severity;
use ftb_core::catalog::names;

macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident = $name:ident, $severity:ident;)*) => {
        /// The kind of an event.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind { $($(#[$doc])* $variant,)* }

        impl Kind {
            /// All kinds, those of the thesis first, in its order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Name of the event.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => names::$name,)* }
            }

            /// Default severity.
            pub const fn severity(self) -> Severity {
                match self { $(Self::$variant => Severity::$severity,)* }
            }
        }
    };
}

kinds! {
    /// An adapter appeared.
    AdapterAvailable = FTB_IB_ADAPTER_AVAILABLE, Info;
    /// The node has no adapter.
    AdapterUnavailable = FTB_IB_ADAPTER_UNAVAILABLE, Warning;
    /// Description of an adapter.
    AdapterInfo = FTB_IB_ADAPTER_INFO, Info;
    /// The state of a port: at the start, and after a change that keeps its availability.
    PortInfo = FTB_IB_PORT_INFO, Info;
    /// A port became unavailable.
    PortErr = FTB_IB_PORT_ERR, Error;
    /// A port became available.
    PortActive = FTB_IB_PORT_ACTIVE, Info;
    /// The adapter failed. FATAL here, because it is the worst event; INFO in the thesis.
    DeviceFatal = FTB_IB_EVENT_DEVICE_FATAL, Fatal;
    /// A port has another local identifier.
    LidChange = FTB_IB_EVENT_LID_CHANGE, Info;
    /// The partition keys of a port changed.
    PkeyChange = FTB_IB_EVENT_PKEY_CHANGE, Info;
    /// A port has another subnet manager.
    SmChange = FTB_IB_EVENT_SM_CHANGE, Info;

    /// The subnet manager requests all subscribers to register again.
    ClientReregister = FTB_IB_EVENT_CLIENT_REREGISTER, Info;
    /// The GID table of a port changed (on Ethernet: an address came or went).
    GidChange = FTB_IB_EVENT_GID_CHANGE, Info;
    /// A completion queue overran.
    CqErr = FTB_IB_EVENT_CQ_ERR, Error;
    /// A queue pair failed.
    QpFatal = FTB_IB_EVENT_QP_FATAL, Error;
    /// A queue pair got an invalid request.
    QpReqErr = FTB_IB_EVENT_QP_REQ_ERR, Error;
    /// A queue pair got a forbidden request.
    QpAccessErr = FTB_IB_EVENT_QP_ACCESS_ERR, Error;
    /// A queue pair got data before its connection was confirmed.
    CommEst = FTB_IB_EVENT_COMM_EST, Info;
    /// A send queue has drained.
    SqDrained = FTB_IB_EVENT_SQ_DRAINED, Info;
    /// A connection moved to its alternate path.
    PathMig = FTB_IB_EVENT_PATH_MIG, Warning;
    /// A connection could not move to its alternate path.
    PathMigErr = FTB_IB_EVENT_PATH_MIG_ERR, Error;
    /// A shared receive queue failed.
    SrqErr = FTB_IB_EVENT_SRQ_ERR, Error;
    /// A shared receive queue runs low.
    SrqLimitReached = FTB_IB_EVENT_SRQ_LIMIT_REACHED, Info;
    /// A queue pair took its last entry from a shared receive queue.
    QpLastWqeReached = FTB_IB_EVENT_QP_LAST_WQE_REACHED, Info;
    /// A work queue failed.
    WqFatal = FTB_IB_EVENT_WQ_FATAL, Error;
    /// Verbs reported an unknown number.
    Unknown = FTB_IB_EVENT_UNKNOWN, Warning;
    /// An adapter went away.
    AdapterRemoved = FTB_IB_ADAPTER_REMOVED, Warning;
    /// A port went up and down several times within the debounce time.
    PortFlapping = FTB_IB_PORT_FLAPPING, Warning;
    /// A port that flapped has not changed for a while.
    PortSteady = FTB_IB_PORT_STEADY, Info;
    /// An error counter of a port rises too fast: the link may fail.
    PortDegraded = FTB_IB_PORT_DEGRADED, Warning;
    /// A counter of a degraded or congested port is back below its limit.
    PortRecovered = FTB_IB_PORT_RECOVERED, Info;
    /// A port waits too much for its neighbour.
    PortCongested = FTB_IB_PORT_CONGESTED, Warning;
}

impl Kind {
    /// The kind with this event name, in upper or lower case.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name().eq_ignore_ascii_case(name))
    }

    /// The kind of an event number of verbs (`enum ibv_event_type`).
    pub const fn from_verbs(number: u32) -> Self {
        match number {
            0 => Self::CqErr,
            1 => Self::QpFatal,
            2 => Self::QpReqErr,
            3 => Self::QpAccessErr,
            4 => Self::CommEst,
            5 => Self::SqDrained,
            6 => Self::PathMig,
            7 => Self::PathMigErr,
            8 => Self::DeviceFatal,
            9 => Self::PortActive,
            10 => Self::PortErr,
            11 => Self::LidChange,
            12 => Self::PkeyChange,
            13 => Self::SmChange,
            14 => Self::SrqErr,
            15 => Self::SrqLimitReached,
            16 => Self::QpLastWqeReached,
            17 => Self::ClientReregister,
            18 => Self::GidChange,
            19 => Self::WqFatal,
            _ => Self::Unknown,
        }
    }

    /// Whether the event of verbs names a port.
    pub const fn is_of_port(self) -> bool {
        matches!(
            self,
            Self::PortActive
                | Self::PortErr
                | Self::LidChange
                | Self::PkeyChange
                | Self::SmChange
                | Self::ClientReregister
                | Self::GidChange
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftb_core::{EventName, catalog};

    #[test]
    fn names_and_severities_are_those_of_the_thesis() {
        let appendix_a = [
            ("FTB_IB_ADAPTER_AVAILABLE", Severity::Info),
            ("FTB_IB_ADAPTER_UNAVAILABLE", Severity::Warning),
            ("FTB_IB_ADAPTER_INFO", Severity::Info),
            ("FTB_IB_PORT_INFO", Severity::Info),
            ("FTB_IB_PORT_ERR", Severity::Error),
            ("FTB_IB_PORT_ACTIVE", Severity::Info),
            // The thesis has INFO; the default here is FATAL on purpose.
            ("FTB_IB_EVENT_DEVICE_FATAL", Severity::Fatal),
            ("FTB_IB_EVENT_LID_CHANGE", Severity::Info),
            ("FTB_IB_EVENT_PKEY_CHANGE", Severity::Info),
            ("FTB_IB_EVENT_SM_CHANGE", Severity::Info),
        ];
        for ((name, severity), kind) in appendix_a.into_iter().zip(Kind::ALL) {
            assert_eq!((kind.name(), kind.severity()), (name, severity));
        }
    }

    #[test]
    fn every_name_is_valid_and_finds_its_kind() {
        for kind in Kind::ALL {
            EventName::check(kind.name()).expect("a valid name");
            assert_eq!(Kind::from_name(&kind.name().to_lowercase()), Some(*kind));
        }
        assert_eq!(Kind::from_name("FTB_IB_NOTHING"), None);
    }

    #[test]
    fn the_catalogue_has_every_event_with_its_severity() {
        for kind in Kind::ALL {
            let entry = catalog::event(kind.name()).expect("an entry");
            let severity = kind.severity().as_str().to_ascii_lowercase();
            assert_eq!((entry.space, entry.severity), ("ftb.ib", &severity[..]), "{}", entry.name);
        }
    }

    #[test]
    fn every_number_of_verbs_has_a_kind_and_a_new_one_is_unknown() {
        for number in 0..20 {
            assert_ne!(Kind::from_verbs(number), Kind::Unknown, "{number}");
        }
        for number in [20, 255, u32::MAX] {
            assert_eq!(Kind::from_verbs(number), Kind::Unknown);
        }
    }
}
