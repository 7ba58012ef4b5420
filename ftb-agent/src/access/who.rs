//! Whom a rule names: users and groups of this host.

use ftb_transport::Credentials;
use nix::unistd::{Group, User};
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, de};
use std::fmt;

/// Some users.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Who {
    /// Every user of the host.
    Everyone,
    /// The user that the agent itself runs as.
    Agent,
    /// In `subscribe` only: every user, of the events that are its own.
    Own,
    /// One user, by number.
    Uid(u32),
    /// Users of a primary group, or named as members of it.
    Group {
        /// Its number.
        gid: u32,
        /// The users that the group names as members, when the rules were read.
        members: Vec<u32>,
    },
}

impl TryFrom<String> for Who {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let number = |digits: &str| digits.parse().map_err(|_| format!("{digits:?} is no number"));
        match text.split_once(':') {
            None if text == "everyone" => Ok(Self::Everyone),
            None if text == "agent" => Ok(Self::Agent),
            None if text == "own" => Ok(Self::Own),
            None => user(&text),
            Some(("user", name)) => user(name),
            Some(("group", name)) => group(name),
            Some(("uid", digits)) => number(digits).map(Self::Uid),
            Some(("gid", digits)) => {
                number(digits).map(|gid| Self::Group { gid, members: Vec::new() })
            }
            Some(_) => Err(format!(
                "{text:?} is no user: expected everyone, agent, user:NAME, group:NAME, uid:N or \
                     gid:N"
            )),
        }
    }
}

/// A user of this host by name.
pub(super) fn user(name: &str) -> Result<Who, String> {
    match User::from_name(name) {
        Ok(Some(user)) => Ok(Who::Uid(user.uid.as_raw())),
        Ok(None) => Err(format!("there is no user {name:?} on this host")),
        Err(error) => Err(format!("cannot look up the user {name:?}: {error}")),
    }
}

fn group(name: &str) -> Result<Who, String> {
    match Group::from_name(name) {
        Ok(Some(group)) => {
            let uid = |name: &String| User::from_name(name).ok().flatten().map(|u| u.uid.as_raw());
            let members = group.mem.iter().filter_map(uid).collect();
            Ok(Who::Group { gid: group.gid.as_raw(), members })
        }
        Ok(None) => Err(format!("there is no group {name:?} on this host")),
        Err(error) => Err(format!("cannot look up the group {name:?}: {error}")),
    }
}

impl Who {
    /// Whether it names that user for all events.
    pub(super) fn is(&self, who: Credentials, agent_uid: u32) -> bool {
        match self {
            Self::Everyone => true,
            Self::Own => false,
            Self::Agent => who.uid == agent_uid,
            Self::Uid(uid) => who.uid == *uid,
            Self::Group { gid, members } => who.gid == *gid || members.contains(&who.uid),
        }
    }
}

/// One word, or a list of them.
pub(super) fn one_or_more<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Vec<Who>>, D::Error> {
    struct Words;

    impl<'de> Visitor<'de> for Words {
        type Value = Vec<Who>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a user like \"everyone\", or a list of users")
        }

        fn visit_str<E: de::Error>(self, word: &str) -> Result<Vec<Who>, E> {
            Who::try_from(word.to_owned()).map(|who| vec![who]).map_err(E::custom)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut words: A) -> Result<Vec<Who>, A::Error> {
            let mut all = Vec::new();
            while let Some(who) = words.next_element()? {
                all.push(who);
            }
            Ok(all)
        }
    }

    from.deserialize_any(Words).map(Some)
}
