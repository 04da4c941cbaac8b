//! One file for each kind of forge.
//!
//! In: a repository and an [`Intent`](super::Intent), or the answer to its request. Out: the request, in the paths and fields of this forge,
//! and what its answer means. The files repeat each other on purpose: a forge changes its API alone, and its file is read beside its schema.

pub(super) mod bitbucket_cloud;
pub(super) mod bitbucket_server;
pub(super) mod gitea;
pub(super) mod github;
pub(super) mod gitlab;
