//! The reasons of Promotions and of the condition `PromotionPending`: one word each.

/// Nobody has approved the promotion yet.
pub const WAITING_APPROVAL: &str = "WaitingApproval";
/// The environment before has not been ready for long enough.
pub const SOAKING: &str = "Soaking";
/// The environment before is not ready.
pub const ENVIRONMENT_NOT_READY: &str = "EnvironmentNotReady";
/// The state of one of the two environments is not known.
pub const NOT_OBSERVED: &str = "NotObserved";
/// The revision is not whole, so it cannot be written.
pub const REVISION_NOT_SETTABLE: &str = "RevisionNotSettable";
/// The revision ran in the environment before when it was first seen.
pub const BASELINE: &str = "Baseline";
/// Promotions to the environment are suspended.
pub const SUSPENDED: &str = "Suspended";
/// Nothing waits to be promoted.
pub const UP_TO_DATE: &str = "UpToDate";
/// The promotion was requested, and the environment does not run the revision yet.
pub const WAITING_FOR_ENVIRONMENT: &str = "WaitingForEnvironment";
/// A receiver has not accepted the request yet. Relaybook sends it again.
pub const REQUEST_RETRYING: &str = "RequestRetrying";
/// The request was not sent yet, because something is missing or suspended.
pub const REQUEST_WAITING: &str = "RequestWaiting";
/// No receiver has accepted the request, and it is not sent again.
pub const REQUEST_FAILED: &str = "RequestFailed";
/// A receiver has accepted the request after the promotion had failed. The step with this reason is not another request.
pub const REQUEST_ACCEPTED: &str = "RequestAccepted";
/// The commit is being made and pushed.
pub const PUSHING: &str = "Pushing";
/// The commit is on its branch.
pub const PUSHED: &str = "Pushed";
/// The commit is being pushed, and the pull request is being opened.
pub const OPENING: &str = "Opening";
/// The pull request is open.
pub const OPENED: &str = "Opened";
/// The pull request is open, and has conflicts with its base branch.
pub const CONFLICT: &str = "Conflict";
/// The pull request was merged.
pub const MERGED: &str = "Merged";
/// The pull request was closed without being merged.
pub const CLOSED: &str = "Closed";
/// The forge does not have the pull request any more.
pub const PULL_REQUEST_GONE: &str = "PullRequestGone";
/// The pull request is being closed, because the promotion is not needed any more.
pub const WITHDRAWING: &str = "Withdrawing";
/// A target of the environment has failed at the revision.
pub const TARGET_FAILED: &str = "TargetFailed";
/// The revision is the commit of a promotion of the same pipeline.
pub const OWN_COMMIT: &str = "OwnCommit";
/// The environment tried the revision before the promotion was requested.
pub const ALREADY_DECLARED: &str = "AlreadyDeclared";
/// The environment runs the revision.
pub const RUNNING: &str = "Running";
/// The environment did not run the revision in time.
pub const NOT_RUNNING: &str = "NotRunning";
/// A later promotion, or a later occasion, replaces the promotion.
pub const SUPERSEDED: &str = "Superseded";
/// The environment before runs another revision.
pub const SOURCE_MOVED: &str = "SourceMoved";
/// The pipeline does not exist any more.
pub const PIPELINE_GONE: &str = "PipelineGone";
/// The pipeline does not have the environment any more.
pub const ENVIRONMENT_GONE: &str = "EnvironmentGone";
/// The pipeline has no strategy for the environment.
pub const NO_STRATEGY: &str = "NoStrategy";
/// The promotion was never valid. Nothing was done.
pub const NOT_INDICATED: &str = "NotIndicated";
