//! Pure: what is asked of a forge, the request for it, and what an answer can mean.

use http::Method;
use serde_json::Value;
use url::Url;

use super::pull_request::PullRequest;

/// Number of pull requests on a page. A page of GitHub or Gitea contains both repositories of each pull request. With long descriptions, 50
/// of them would exceed [`super::MAX_ANSWER`].
pub const PAGE: u32 = 30;
/// Maximum number of pages that are read. Pages begin with the newest pull request.
pub const MAX_PAGES: u32 = 40;

/// One request to a forge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent<'a> {
    /// Find the pull requests in all states from a branch to a base branch, one page at a time. Answer: [`Meaning::Page`].
    Find {
        /// The branch with the change.
        branch: &'a str,
        /// The branch into which it is merged.
        base: &'a str,
        /// The page. Start with [`Cursor::FIRST`].
        cursor: Cursor,
    },
    /// Create a pull request. Answer: [`Meaning::Created`] or [`Meaning::Exists`].
    Create(NewPullRequest<'a>),
    /// Add labels to a pull request. Answer: [`Meaning::Done`]. Only Gitea and GitHub; GitLab sets labels at creation.
    Label {
        /// Number of the pull request.
        number: u64,
        /// Names of labels. Gitea ignores those that do not exist.
        labels: &'a [String],
    },
    /// Read a pull request. Answer: [`Meaning::Seen`] or [`Meaning::Gone`].
    Look {
        /// Number of the pull request.
        number: u64,
    },
    /// Ask whether an open pull request can be merged. Answer: [`Meaning::Mergeability`]. Only Bitbucket Server; the others say it with
    /// [`Intent::Look`].
    Mergeability {
        /// Number of the pull request.
        number: u64,
    },
    /// Write a comment. Answer: [`Meaning::Done`] or [`Meaning::Gone`].
    Comment {
        /// Number of the pull request.
        number: u64,
        /// The text, in Markdown.
        text: &'a str,
    },
    /// Close a pull request without merging it. Answer: [`Meaning::Seen`], [`Meaning::Changed`] or [`Meaning::Gone`]. A pull request that is
    /// merged in the meantime is seen as merged.
    Close {
        /// Number of the pull request.
        number: u64,
        /// [`PullRequest::version`] of the last look, which Bitbucket Server requires.
        version: Option<u64>,
    },
}

/// A pull request to create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewPullRequest<'a> {
    /// The branch with the change.
    pub branch: &'a str,
    /// The branch into which it is merged.
    pub base: &'a str,
    /// The title: [`super::text::title`].
    pub title: &'a str,
    /// The description, in Markdown, with the marker as its last line: [`super::text::body`].
    pub body: &'a str,
    /// Names of labels. Only GitLab sets them at creation; for others see [`Intent::Label`].
    pub labels: &'a [String],
}

/// A place in the list of pull requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// Number of pages before this one.
    pages: u32,
    /// Number of pull requests before this page. A forge can return fewer on a page than it was asked for.
    items: u64,
}

impl Cursor {
    /// The first page.
    pub const FIRST: Self = Self { pages: 0, items: 0 };

    /// Returns the number of this page, from 1.
    pub(super) const fn page(self) -> u32 {
        self.pages + 1
    }

    /// Returns the number of pull requests before this page.
    pub(super) const fn items(self) -> u64 {
        self.items
    }

    /// Returns the next page, or `None` if the maximum number of pages has been read.
    pub(super) const fn next(self, items_before: u64) -> Option<Self> {
        let pages = self.pages + 1;
        if pages < MAX_PAGES { Some(Self { pages, items: items_before }) } else { None }
    }
}

/// An HTTP request without credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The URL. It is below [`super::Repository::api`].
    pub url: Url,
    /// Names in lower case, and values.
    pub headers: Vec<(&'static str, String)>,
    /// A JSON document.
    pub body: Option<Vec<u8>>,
}

impl Request {
    pub(super) fn new(method: Method, url: Url, body: Option<&Value>) -> Self {
        let mut headers = vec![("accept", "application/json".to_owned())];
        if body.is_some() {
            headers.push(("content-type", "application/json".to_owned()));
        }
        Self { method, url, headers, body: body.map(|body| body.to_string().into_bytes()) }
    }

    pub(super) fn get(url: Url) -> Self {
        Self::new(Method::GET, url, None)
    }

    pub(super) fn post(url: Url, body: &Value) -> Self {
        Self::new(Method::POST, url, Some(body))
    }

    /// Replaces the media type of the answer.
    pub(super) fn accept(&mut self, media_type: &str) {
        self.headers.retain(|(name, _)| *name != "accept");
        self.headers.push(("accept", media_type.to_owned()));
    }

    /// Asks for an answer only if it is a new one.
    pub(super) fn conditional(mut self, etag: Option<&str>) -> Self {
        if let Some(etag) = etag.filter(|_| self.method == Method::GET) {
            self.headers.push(("if-none-match", etag.to_owned()));
        }
        self
    }
}

/// What an answer means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// A page of pull requests.
    Page {
        /// Those from the branch to the base branch. Pull requests from forks are left out, because Relaybook pushes to the repository itself.
        found: Vec<PullRequest>,
        /// The next page. `None` after the last one, and after [`MAX_PAGES`].
        next: Option<Cursor>,
    },
    /// The pull request exists now. Bitbucket Cloud returns an open one of the same branches instead of creating a second one, so compare
    /// [`PullRequest::is_of`].
    Created(PullRequest),
    /// There is an open pull request of the same branches. Find it.
    Exists,
    /// The pull request.
    Seen(PullRequest),
    /// Whether an open pull request can be merged.
    Mergeability {
        /// Whether there is a conflict. `None` if the forge does not know it yet.
        conflict: Option<bool>,
        /// Whether nothing prevents the merge.
        mergeable: bool,
    },
    /// The pull request does not exist, or the repository: find the pull request again to know which.
    Gone,
    /// The pull request changed, or is not open any more. Read it again.
    Changed,
    /// The answer is the same as the one with the entity tag of the request.
    Unchanged,
    /// It was done.
    Done,
}
