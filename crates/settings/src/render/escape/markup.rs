//! Escapes values for the markup of chat rooms and forges, so that a value cannot format text or mention a user. A plain URL in a value
//! stays a URL, because most receivers turn it into a link in any markup.
//!
//! This precedes the escaping for the context. First the text is escaped for its markup, then for the JSON that contains it.

/// A markup that receivers support.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Markup {
    /// The markup of Slack (<https://docs.slack.dev/messaging/formatting-message-text>). Mentions and links are enclosed in `<…>`.
    Mrkdwn,
    /// CommonMark (<https://spec.commonmark.org/0.31.2/#backslash-escapes>) and its dialects, in which `@name` mentions a user.
    Markdown,
    /// HTML, as Telegram, Google Chat and Grafana support it.
    Html,
}

/// A character without width that is not a space. A word that contains it has no meaning in the markup.
const BREAK: char = '\u{200b}';
/// Replaces the text that was cut.
const CUT: char = '…';

/// The surroundings of a character, on which its escaping depends.
struct Around {
    previous: Option<char>,
    /// Whether only spaces, tabs and digits precede it in its line.
    starts_line: bool,
    next: Option<char>,
}

impl Markup {
    /// Escapes a text. The result has at most `most` characters (at least 1). A longer text is cut between its characters, never within an
    /// escape, and ends with `…`.
    pub(crate) fn escape(self, text: &str, most: usize) -> String {
        let mut escaped = String::with_capacity(text.len() + 16);
        let (mut length, mut kept, mut starts_line) = (0_usize, 0, true);
        let (mut chars, mut previous) = (text.chars().peekable(), None);
        while let Some(c) = chars.next() {
            let before = escaped.len();
            let around = Around { previous: previous.replace(c), starts_line, next: chars.peek().copied() };
            self.push(c, &around, &mut escaped);
            length = length.saturating_add(escaped[before..].chars().count());
            if length > most {
                escaped.truncate(kept);
                escaped.push(CUT);
                break;
            }
            if length < most {
                kept = escaped.len();
            }
            starts_line = matches!(c, '\n' | '\r') || (starts_line && (c.is_ascii_digit() || matches!(c, ' ' | '\t')));
        }
        escaped
    }

    fn push(self, c: char, around: &Around, to: &mut String) {
        match self {
            Self::Mrkdwn => mrkdwn(c, around, to),
            Self::Markdown => markdown(c, around, to),
            Self::Html => html(c, to),
        }
    }
}

/// Escapes a character for Slack. Slack has no escape for formatting characters, so `BREAK` separates them from the words that they would
/// format.
fn mrkdwn(c: char, around: &Around, to: &mut String) {
    match c {
        '&' => to.push_str("&amp;"),
        '<' => to.push_str("&lt;"),
        '>' if around.starts_line => to.extend([BREAK, '&', 'g', 't', ';']),
        '>' => to.push_str("&gt;"),
        '*' | '_' | '~' | '`' => to.extend([BREAK, c, BREAK]),
        c => to.push(c),
    }
}

/// Escapes a character for Markdown, but only if it has a meaning there, because not every dialect of Markdown supports all escapes.
fn markdown(c: char, around: &Around, to: &mut String) {
    let word_follows = around.next.is_some_and(char::is_alphanumeric);
    let means = match c {
        '\\' | '`' | '*' | '_' | '~' | '|' | '[' | ']' | '<' | '>' | '$' => true,
        '&' => word_follows || around.next == Some('#'),
        '#' | '-' | '+' | '=' | '.' | ')' => around.starts_line,
        _ => false,
    };
    if means {
        to.push('\\');
    }
    to.push(c);
    // Receivers find mentions, and references such as owner/name#12 and GH-12, in the displayed text. So a backslash does not prevent them.
    let begins_word = !around.previous.is_some_and(char::is_alphanumeric) && word_follows;
    let number_follows = around.next.is_some_and(|next| next.is_ascii_digit());
    let refers = match c {
        '@' | '~' => begins_word,
        '#' => begins_word || number_follows,
        '-' => number_follows && matches!(around.previous, Some('h' | 'H')),
        _ => false,
    };
    if refers {
        to.push(BREAK);
    }
}

fn html(c: char, to: &mut String) {
    match c {
        '&' => to.push_str("&amp;"),
        '<' => to.push_str("&lt;"),
        '>' => to.push_str("&gt;"),
        '"' => to.push_str("&quot;"),
        '\'' => to.push_str("&#39;"),
        c => to.push(c),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn characters_with_a_meaning_are_escaped_in_each_markup() {
        for (markup, text, escaped) in [
            (Markup::Mrkdwn, "<!channel> & <@U1>", "&lt;!channel&gt; &amp; &lt;@U1&gt;"),
            (Markup::Mrkdwn, "> a\n> b > c", "\u{200b}&gt; a\n\u{200b}&gt; b &gt; c"),
            (Markup::Mrkdwn, "*a*", "\u{200b}*\u{200b}a\u{200b}*\u{200b}"),
            (Markup::Markdown, "*a* _b_ `c` ~d~ |e|", "\\*a\\* \\_b\\_ \\`c\\` \\~\u{200b}d\\~ \\|e\\|"),
            (Markup::Markdown, "[x](http://e) <b> &amp; a & b", r"\[x\](http://e) \<b\> \&amp; a & b"),
            (
                Markup::Markdown,
                "# a\n- b\n+ c\n12. d\n 3) e\n> f\n===",
                "\\# a\n\\- b\n\\+ c\n12\\. d\n 3\\) e\n\\> f\n\\===",
            ),
            (Markup::Markdown, "a - b + c. 1.5 = x)", "a - b + c. 1.5 = x)"),
            (Markup::Markdown, "@all #12 a@b.c (@x) @ #", "@\u{200b}all #\u{200b}12 a@b.c (@\u{200b}x) @ #"),
            (
                Markup::Markdown,
                "a/b#12 GH-12 a\r# b\t\n\t- c $x$",
                "a/b#\u{200b}12 GH-\u{200b}12 a\r\\# b\t\n\t\\- c \\$x\\$",
            ),
            (Markup::Markdown, r"C:\new", r"C:\\new"),
            (Markup::Html, "<b a=\"c\">'&", "&lt;b a=&quot;c&quot;&gt;&#39;&amp;"),
        ] {
            assert_eq!(markup.escape(text, usize::MAX), escaped, "{text}");
        }
    }

    #[test]
    fn a_text_is_never_cut_inside_of_an_escape() {
        for (text, most, escaped) in [
            ("<<", 1, "…"),
            ("<<", 4, "…"),
            ("<<", 5, "&lt;…"),
            ("<<", 8, "&lt;&lt;"),
            ("<b>", 6, "&lt;b…"),
            ("<b>", 8, "&lt;b…"),
            ("<b>", 9, "&lt;b&gt;"),
        ] {
            assert_eq!(Markup::Html.escape(text, most), escaped, "{text} {most}");
        }
    }

    proptest! {
        #[test]
        fn escaped_texts_keep_to_the_maximum_length(text in r"[a-z<>&*_@#\\ \n1.é\u{1f6a9}-]{0,40}", most in 1_usize..60) {
            for markup in [Markup::Mrkdwn, Markup::Markdown, Markup::Html] {
                let (whole, cut) = (markup.escape(&text, usize::MAX), markup.escape(&text, most));
                prop_assert!(cut.chars().count() <= most);
                let is_whole = whole.chars().count() <= most;
                prop_assert_eq!(cut == whole, is_whole, "{:?} {:?}", cut, whole);
                prop_assert!(is_whole || whole.starts_with(cut.trim_end_matches('…')));
            }
        }

        #[test]
        fn escaped_html_has_no_tags_and_only_whole_entities(text in any::<String>(), most in 1_usize..200) {
            let escaped = Markup::Html.escape(&text, most);
            prop_assert!(!escaped.contains(['<', '>', '"', '\'']));
            let entities = escaped.matches('&').count();
            let whole = ["&amp;", "&lt;", "&gt;", "&quot;", "&#39;"].iter().map(|e| escaped.matches(e).count()).sum::<usize>();
            prop_assert_eq!(entities, whole);
        }

        #[test]
        fn escaped_slack_text_has_no_mention(text in any::<String>()) {
            let escaped = Markup::Mrkdwn.escape(&text, usize::MAX);
            prop_assert!(!escaped.contains(['<', '>']));
        }
    }
}
