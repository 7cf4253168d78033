//! Kinds of name spaces: their names in `/proc/PID/ns`, and what stands for them in flags.

/// A kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the manual")]
pub(crate) enum Kind {
    Cgroup,
    Ipc,
    Mount,
    Network,
    Process,
    /// That which children will be in.
    ProcessOfChildren,
    Time,
    /// That which children will be in.
    TimeOfChildren,
    User,
    SystemNames,
}

/// What `/proc/PID/ns` lists, in its order.
pub(crate) const ENTRIES: [(&str, Kind); 10] = [
    ("cgroup", Kind::Cgroup),
    ("ipc", Kind::Ipc),
    ("mnt", Kind::Mount),
    ("net", Kind::Network),
    ("pid", Kind::Process),
    ("pid_for_children", Kind::ProcessOfChildren),
    ("time", Kind::Time),
    ("time_for_children", Kind::TimeOfChildren),
    ("user", Kind::User),
    ("uts", Kind::SystemNames),
];

impl Kind {
    /// All of them, in the order in which a call enters them: the one that gives the right to enter others first.
    pub(super) const ENTERED: [Self; 8] = [
        Self::User,
        Self::Mount,
        Self::SystemNames,
        Self::Ipc,
        Self::Process,
        Self::Cgroup,
        Self::Network,
        Self::Time,
    ];

    /// Its name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Cgroup => "cgroup",
            Self::Ipc => "ipc",
            Self::Mount => "mnt",
            Self::Network => "net",
            Self::Process | Self::ProcessOfChildren => "pid",
            Self::Time | Self::TimeOfChildren => "time",
            Self::User => "user",
            Self::SystemNames => "uts",
        }
    }

    /// The number of the first name space of the kind.
    pub(super) const fn first_number(self) -> u64 {
        match self {
            Self::Cgroup => 4_026_531_835,
            Self::Ipc => 4_026_531_839,
            Self::Mount => 4_026_531_841,
            Self::Network => 4_026_531_840,
            Self::Process | Self::ProcessOfChildren => 4_026_531_836,
            Self::Time | Self::TimeOfChildren => 4_026_531_834,
            Self::User => 4_026_531_837,
            Self::SystemNames => 4_026_531_838,
        }
    }

    /// Its flag for clone(2), unshare(2) and setns(2).
    pub(super) const fn flag(self) -> u32 {
        match self {
            Self::Time | Self::TimeOfChildren => 0x80,
            Self::Mount => 0x0002_0000,
            Self::Cgroup => 0x0200_0000,
            Self::SystemNames => 0x0400_0000,
            Self::Ipc => 0x0800_0000,
            Self::User => 0x1000_0000,
            Self::Process | Self::ProcessOfChildren => 0x2000_0000,
            Self::Network => 0x4000_0000,
        }
    }
}
