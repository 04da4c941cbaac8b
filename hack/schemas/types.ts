// Requests that these receivers publish only as TypeScript types. `generate.mjs` generates a JSON Schema of each type that is
// exported here.
import type { SendMessageParams } from "@gramio/types";
import type { MessageAttachment as MattermostAttachment } from "@mattermost/types/message_attachments";
import type { IAdaptiveCard } from "@microsoft/teams.cards";
import type { ChangePayload, EventPayloadV2 } from "@pagerduty/pdjs/build/src/events";
import type { CreateADeployData } from "@sentry/api";
import type { KnownBlock, MessageAttachment } from "@slack/types";
import type { GitStatus, GitStatusContext, GitStatusState } from "azure-devops-node-api/interfaces/GitInterfaces";

// https://docs.slack.dev/reference/methods/chat.postMessage/: the package has types only for the parts.
export interface Slack {
  channel?: string;
  username?: string;
  text: string;
  blocks?: KnownBlock[];
  attachments?: MessageAttachment[];
  unfurl_links?: boolean;
  unfurl_media?: boolean;
}

// https://learn.microsoft.com/en-us/microsoftteams/platform/webhooks-and-connectors/how-to/connectors-using; the type has a
// small letter in the width, where the documentation has a capital:
// https://learn.microsoft.com/en-us/microsoftteams/platform/task-modules-and-cards/cards/cards-format#full-width-adaptive-card
export interface Teams {
  type: "message";
  attachments: { contentType: "application/vnd.microsoft.card.adaptive"; contentUrl: null; content: TeamsCard }[];
}
interface TeamsCard extends Omit<IAdaptiveCard, "msteams"> {
  msteams?: { width?: "Full" };
}

// https://developers.mattermost.com/integrate/webhooks/incoming/
export interface Mattermost {
  channel?: string;
  username?: string;
  text?: string;
  attachments?: MattermostAttachment[];
}

export type Telegram = SendMessageParams;

// The routing key goes in a header. The type lacks the two fields of the client, which the documentation has:
// https://developer.pagerduty.com/docs/events-api-v2/trigger-events/
export interface PagerdutyEvent extends Omit<EventPayloadV2, "routing_key"> {
  client?: string;
  client_url?: string;
}

// Links are optional: https://developer.pagerduty.com/docs/events-api-v2/send-change-events/
export type PagerdutyChange = Pick<ChangePayload, "payload"> & Partial<Pick<ChangePayload, "links">>;

export type Sentry = CreateADeployData["body"];

// In a request the states are words, not the client's numbers:
// https://learn.microsoft.com/en-us/rest/api/azure/devops/git/statuses/create#gitstatusstate
export interface AzureDevops extends Pick<GitStatus, "description" | "targetUrl"> {
  state: Uncapitalize<keyof typeof GitStatusState>;
  context: GitStatusContext;
}
