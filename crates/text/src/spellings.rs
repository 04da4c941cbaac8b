//! For properties: other spellings of a text, as an attacker would write them, so that one component reads the text as another one does not.

use proptest::prelude::*;

/// Changes of a text that some component could ignore, decode, fold or split at.
#[derive(Clone, Copy, Debug)]
enum Change {
    Insert(&'static str),
    UpperCase,
    LowerCase,
    LookAlike,
    PercentEncode,
    Repeat,
    Remove,
}

/// Texts that are ignored, separate or end a text somewhere.
const INSERTED: [&str; 26] = [
    "/", "//", "\\", ".", "..", "../", "./", " ", "\t", "\n", "\r\n", "\0", "%2f", "%00", "%2e", "?", "#", "@", ":", ";",
    ",", "=", "\u{200b}", "\u{feff}", "\u{202e}", "\u{ff0f}",
];

/// Returns one of these texts with up to three changes.
pub fn spelling(texts: &'static [&'static str]) -> impl Strategy<Value = String> {
    let change = prop_oneof![
        4 => prop::sample::select(&INSERTED[..]).prop_map(Change::Insert),
        1 => Just(Change::UpperCase),
        1 => Just(Change::LowerCase),
        1 => Just(Change::LookAlike),
        1 => Just(Change::PercentEncode),
        1 => Just(Change::Repeat),
        1 => Just(Change::Remove),
    ];
    let changes = prop::collection::vec((change, any::<prop::sample::Index>()), 0..=3);
    (prop::sample::select(texts), changes).prop_map(|(text, changes)| {
        changes.into_iter().fold(text.to_owned(), |text, (change, at)| changed(&text, change, at))
    })
}

fn changed(text: &str, change: Change, at: prop::sample::Index) -> String {
    let letters: Vec<char> = text.chars().collect();
    let at = at.index(letters.len() + 1);
    let (before, rest): (String, &[char]) = (letters[..at].iter().collect(), &letters[at..]);
    let Some((&first, after)) = rest.split_first() else {
        // At the end, something can only be added.
        return if let Change::Insert(added) = change { format!("{text}{added}") } else { text.to_owned() };
    };
    let after: String = after.iter().collect();
    let middle = match change {
        Change::Insert(added) => format!("{added}{first}"),
        Change::UpperCase => first.to_uppercase().to_string(),
        Change::LowerCase => first.to_lowercase().to_string(),
        Change::LookAlike => look_alike(first).to_string(),
        Change::PercentEncode => encoded(first),
        Change::Repeat => format!("{first}{first}"),
        Change::Remove => String::new(),
    };
    format!("{before}{middle}{after}")
}

fn encoded(letter: char) -> String {
    letter.to_string().bytes().fold(String::new(), |text, byte| format!("{text}%{byte:02x}"))
}

/// Returns a letter that looks the same, or that Unicode folds to the same one.
fn look_alike(letter: char) -> char {
    match letter {
        'a' => 'а',
        'e' => 'е',
        'o' => 'о',
        'c' => 'с',
        's' | 'S' => 'ſ',
        'k' | 'K' => '\u{212a}',
        '/' => '\u{2215}',
        '.' => '\u{3002}',
        '-' => '\u{2010}',
        other if other.is_ascii_graphic() => char::from_u32(u32::from(other) + 0xfee0).unwrap_or(other),
        other => other,
    }
}
