//! Why a delivery waits, or how it ended.

words! {
    /// `status.reason` of a Delivery. The conditions of a Notification, and the notifications in the status of a Pipeline, have the same reasons
    /// while nothing can be recorded or sent.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Reason {
        /// 408, 425, 429, 5xx, and 403 with a time to wait: the receiver cannot accept the request now.
        ReceiverError,
        /// Another 4xx: the receiver rejects the request.
        ReceiverRejected,
        /// 404: the receiver was not found.
        ReceiverNotFound,
        /// 410: the receiver is permanently gone.
        ReceiverGone,
        /// 2xx, but `endpoint.success` cannot be evaluated on the answer, or it lacks what the next request of the attempt needs.
        AnswerUnreadable,
        /// 401, 403: the receiver does not accept the credentials.
        CredentialsRejected,
        /// 3xx: redirects are not followed.
        Redirected,
        /// No connection was established, or it was interrupted.
        ConnectionFailed,
        /// No answer in time.
        Timeout,
        /// No trusted connection was established.
        TlsFailed,
        /// The name could not be resolved.
        DnsFailed,
        /// The egress policy forbids the address.
        DestinationForbidden,
        /// `http` where only `https` is allowed.
        InsecureScheme,
        /// The Secret has not been read yet.
        SecretUnknown,
        /// Relaybook has no permission to read the Secret.
        SecretUnreadable,
        /// The type of the Secret reserves it for the keys of hooks.
        SecretReserved,
        /// The Secret, or its key, does not exist.
        SecretMissing,
        /// The value in the Secret cannot be used.
        SecretInvalid,
        /// The request is not valid in HTTP.
        InvalidRequest,
        /// No token could be requested for the request.
        TokenRefused,
        /// The GitHub App is not installed for the repository.
        InstallationNotFound,
        /// The GitHub App has no permission, or no access to the repository.
        PermissionMissing,
        /// A user has suspended the notification.
        Suspended,
        /// The global configuration is invalid, and the notification depends on it.
        GlobalConfigInvalid,
        /// A field of the notification is invalid.
        InvalidSpec,
        /// A condition of a trigger is invalid.
        InvalidExpression,
        /// A required part of the notification is missing.
        Incomplete,
        /// A ConfigMap has not been read yet.
        ConfigMapUnknown,
        /// Relaybook has no permission to read the ConfigMap.
        ConfigMapUnreadable,
        /// The ConfigMap, or its key, does not exist.
        ConfigMapMissing,
        /// The layers wait in the compile queue.
        TemplatesCompiling,
        /// A template is invalid.
        TemplateInvalid,
        /// A template fails with the recorded data.
        TemplateFailed,
        /// The revision contains no commit, although the template needs one.
        CommitMissing,
        /// The repository of the target is not known, although the template needs it.
        RepositoryMissing,
        /// No pull request has the commit, although the template comments on one.
        PullRequestMissing,
        /// A template reads a parameter that is not shared with its layer.
        ParameterNotShared,
        /// A layer sends the credentials of another one to another origin.
        CredentialOriginMismatch,
        /// The condition of a trigger could not be evaluated with the recorded data.
        ExpressionFailed,
        /// The API server rejected the creation of a delivery, or the creation failed.
        RecordRefused,
        /// The maximum number of timers runs, and another timer is needed.
        TooManyClocks,
        /// The pipeline does not exist any more.
        PipelineGone,
        /// The pipeline does not have the target any more.
        TargetGone,
        /// The notification does not exist any more.
        NotificationGone,
        /// A later delivery about the same subject waits, and replaces it.
        NewerPending,
        /// The lane is full, and a later delivery replaces it.
        LaneFull,
        /// A later delivery about the same subject was delivered or waits, and the receiver shows the newest one as the current state.
        NewerDelivered,
        /// Relaybook stopped during a test, so its result is not known.
        TestInterrupted,
    }
}

#[cfg(test)]
mod tests {
    use super::Reason;

    #[test]
    fn each_reason_is_found_by_its_text() {
        for reason in Reason::ALL {
            assert_eq!((Reason::parse(reason.as_str()), reason.as_str()), (Some(reason), format!("{reason:?}").as_str()));
        }
        assert_eq!((Reason::parse(""), Reason::parse("suspended"), Reason::parse("Suspended ")), (None, None, None));
    }
}
