//! Which transitions a notification wants.

use globset::{Glob, GlobSet, GlobSetBuilder};

use crate::api::TransitionType;
use crate::api::notification::Trigger;

/// Why a list of triggers cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TriggerError {
    /// An environment pattern is no glob.
    #[error("triggers[{index}].environments: {glob:?} is not a glob")]
    Glob {
        /// Place in the list, from 0.
        index: usize,
        /// What was written.
        glob: String,
        /// What is wrong with it.
        #[source]
        source: globset::Error,
    },
    /// The environment patterns of one trigger are too much together.
    #[error("triggers[{index}].environments: too large")]
    TooLarge {
        /// Place in the list, from 0.
        index: usize,
        /// What is wrong with them.
        #[source]
        source: globset::Error,
    },
}

/// The triggers of one notification, ready to be asked.
#[derive(Clone, Debug, Default)]
pub struct Triggers(Vec<(TransitionType, Option<GlobSet>)>);

impl Triggers {
    /// Compiles a list; an empty one is silence.
    pub fn compile(triggers: &[Trigger]) -> Result<Self, TriggerError> {
        let compiled = triggers.iter().enumerate().map(|(index, trigger)| {
            let environments = trigger.environments.as_deref().map(|globs| glob_set(index, globs)).transpose()?;
            Ok((trigger.type_, environments))
        });
        compiled.collect::<Result<_, _>>().map(Self)
    }

    /// Whether any of them asks for this transition in this environment.
    #[must_use]
    pub fn wants(&self, type_: TransitionType, environment: &str) -> bool {
        let fits = |globs: &Option<GlobSet>| globs.as_ref().is_none_or(|set| set.is_match(environment));
        self.0.iter().any(|(t, globs)| *t == type_ && fits(globs))
    }
}

fn glob_set(index: usize, globs: &[String]) -> Result<GlobSet, TriggerError> {
    let mut set = GlobSetBuilder::new();
    for glob in globs {
        set.add(Glob::new(glob).map_err(|source| TriggerError::Glob { index, glob: glob.clone(), source })?);
    }
    set.build().map_err(|source| TriggerError::TooLarge { index, source })
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;
    use TransitionType::{Deployed, Failed, Removed};

    fn trigger(type_: TransitionType, environments: Option<&[&str]>) -> Trigger {
        Trigger { type_, environments: environments.map(|e| e.iter().map(ToString::to_string).collect()) }
    }

    #[test]
    fn type_and_environment_must_fit_the_same_trigger() {
        let triggers = Triggers::compile(&[
            trigger(Deployed, Some(&["prod", "staging-*", "qa?"])),
            trigger(Failed, None),
            trigger(Removed, Some(&[])),
        ])
        .unwrap();
        for (type_, environment, want) in [
            (Deployed, "prod", true),
            (Deployed, "prod-eu", false),
            (Deployed, "staging-1", true),
            (Deployed, "staging", false),
            (Deployed, "qa1", true),
            (Deployed, "qa10", false),
            (Failed, "dev", true),
            (Removed, "prod", false),
            (TransitionType::Progressing, "prod", false),
        ] {
            assert_eq!(triggers.wants(type_, environment), want, "{type_:?} {environment}");
        }
    }

    #[test]
    fn no_triggers_are_silence() {
        let triggers = Triggers::compile(&[]).unwrap();
        assert!(TransitionType::ALL.iter().all(|t| !triggers.wants(*t, "prod")));
    }

    #[test]
    fn a_bad_glob_is_named() {
        let err = Triggers::compile(&[trigger(Failed, None), trigger(Deployed, Some(&["prod", "[a"]))]).unwrap_err();
        assert_eq!(err.to_string(), r#"triggers[1].environments: "[a" is not a glob"#);
        assert!(err.source().is_some());
    }
}
