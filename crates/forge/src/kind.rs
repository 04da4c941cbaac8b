//! Pure: the kinds of forges, and how their credentials are sent.

use std::fmt;
use std::str::FromStr;

use relaybook_api::promotion::ForgeType;

/// A kind of forge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Gitea and Forgejo.
    Gitea,
    /// GitHub, also GitHub Enterprise Server.
    Github,
    /// GitLab.
    Gitlab,
    /// Bitbucket Cloud.
    BitbucketCloud,
    /// Bitbucket Server and Data Center.
    BitbucketServer,
}

/// How a token is sent to the API of a forge. The value of the header is the prefix and then the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credential {
    /// Name of the header, in lower case.
    pub header: &'static str,
    /// Text before the token.
    pub prefix: &'static str,
}

/// The API has no such kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a kind of forge; use gitea, github, gitlab, bitbucket-cloud or bitbucket-server")]
pub struct UnknownKind;

impl Kind {
    /// All kinds, in the order of the documentation.
    pub const ALL: [Self; 5] = [Self::Gitea, Self::Github, Self::Gitlab, Self::BitbucketCloud, Self::BitbucketServer];

    /// Returns the value in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gitea => "gitea",
            Self::Github => "github",
            Self::Gitlab => "gitlab",
            Self::BitbucketCloud => "bitbucket-cloud",
            Self::BitbucketServer => "bitbucket-server",
        }
    }

    /// Returns how a token is sent to the API.
    #[must_use]
    pub const fn credential(self) -> Credential {
        match self {
            Self::Gitea => Credential { header: "authorization", prefix: "token " },
            Self::Gitlab => Credential { header: "private-token", prefix: "" },
            Self::Github | Self::BitbucketCloud | Self::BitbucketServer => {
                Credential { header: "authorization", prefix: "Bearer " }
            }
        }
    }

    /// Returns the user name with which Git sends a token. Bitbucket Server ignores the name only for some kinds of tokens, so the Secret must
    /// contain one.
    #[must_use]
    pub const fn git_user(self) -> Option<&'static str> {
        match self {
            Self::Gitea => Some("relaybook"),
            Self::Github => Some("x-access-token"),
            Self::Gitlab => Some("oauth2"),
            Self::BitbucketCloud => Some("x-token-auth"),
            Self::BitbucketServer => None,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<ForgeType> for Kind {
    fn from(type_: ForgeType) -> Self {
        match type_ {
            ForgeType::Gitea => Self::Gitea,
            ForgeType::Github => Self::Github,
            ForgeType::Gitlab => Self::Gitlab,
            ForgeType::BitbucketCloud => Self::BitbucketCloud,
            ForgeType::BitbucketServer => Self::BitbucketServer,
        }
    }
}

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(text: &str) -> Result<Self, UnknownKind> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or(UnknownKind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_forge_has_a_name_a_credential_header_and_a_git_user() {
        let table = [
            ("gitea", "authorization: token T", Some("relaybook")),
            ("github", "authorization: Bearer T", Some("x-access-token")),
            ("gitlab", "private-token: T", Some("oauth2")),
            ("bitbucket-cloud", "authorization: Bearer T", Some("x-token-auth")),
            ("bitbucket-server", "authorization: Bearer T", None),
        ];
        for ((word, header, user), kind) in table.into_iter().zip(Kind::ALL) {
            assert_eq!(word.parse(), Ok(kind));
            assert_eq!(kind.to_string(), word);
            let credential = kind.credential();
            assert_eq!(format!("{}: {}T", credential.header, credential.prefix), header);
            assert_eq!(kind.git_user(), user);
        }
        assert_eq!("GitHub".parse::<Kind>(), Err(UnknownKind));
    }
}
