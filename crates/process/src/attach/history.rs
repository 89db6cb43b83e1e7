//! The bytes that an attached terminal is shown first: the last ones that the program printed.
//!
//! * A program on the alternate screen of xterm draws it again when a terminal attaches, as the size changes then: its
//!   output on that screen is not repeated.
//! * Questions to a terminal are not repeated: their answers would reach the program as keys.

use std::collections::VecDeque;

const MOST: usize = 64 << 10;
const WHOLE_SCREEN: &[u8] = b"\x1b[?1049h";
const SCREEN_BACK: &[u8] = b"\x1b[?1049l";

/// The last bytes that were printed.
#[derive(Debug, Default)]
pub(super) struct History {
    bytes: VecDeque<u8>,
    has_screen: bool,
}

impl History {
    pub(super) fn add(&mut self, printed: &[u8]) {
        // A sequence may come in two pieces.
        let before = self.bytes.len().saturating_sub(WHOLE_SCREEN.len() - 1);
        let piece: Vec<u8> = self.bytes.range(before..).chain(printed).copied().collect();
        let (taken, given) = (last(&piece, WHOLE_SCREEN), last(&piece, SCREEN_BACK));
        if taken.is_some() || given.is_some() {
            self.has_screen = taken > given;
        }
        self.bytes.extend(printed);
        let over = self.bytes.len().saturating_sub(MOST);
        self.bytes.drain(..over);
    }

    /// All of it, for one who reads it as text.
    pub(super) fn text(&mut self) -> &[u8] {
        self.bytes.make_contiguous()
    }

    /// For a terminal that is attached now.
    pub(super) fn shown(&mut self) -> Vec<u8> {
        if self.has_screen {
            return [WHOLE_SCREEN, b"\x1b[H\x1b[2J"].concat();
        }
        let held = self.bytes.make_contiguous();
        let from = last(held, SCREEN_BACK).map_or(0, |at| at + SCREEN_BACK.len());
        without_questions(&held[from..])
    }
}

fn last(held: &[u8], wanted: &[u8]) -> Option<usize> {
    held.windows(wanted.len()).rposition(|window| window == wanted)
}

/// Leaves out control sequences that a terminal answers: device status and attributes (`CSI ... n`, `CSI ... c`).
fn without_questions(held: &[u8]) -> Vec<u8> {
    let mut shown = Vec::with_capacity(held.len());
    let mut rest = held;
    while let Some(at) = rest.windows(2).position(|window| window == b"\x1b[") {
        let (before, sequence) = rest.split_at(at);
        shown.extend_from_slice(before);
        let end = sequence[2..].iter().position(|byte| (0x40..=0x7e).contains(byte));
        let Some(end) = end.map(|end| end + 3) else {
            return shown; // cut off at the end
        };
        if !matches!(sequence[end - 1], b'n' | b'c') {
            shown.extend_from_slice(&sequence[..end]);
        }
        rest = &sequence[end..];
    }
    shown.extend_from_slice(rest);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(pieces: &[&[u8]]) -> Vec<u8> {
        let mut history = History::default();
        pieces.iter().for_each(|piece| history.add(piece));
        history.shown()
    }

    #[test]
    fn lines_are_shown_again() {
        assert_eq!(
            shown(&[b"$ make\r\n", b"\x1b[1mdone\x1b[0m\r\n$ "]),
            b"$ make\r\n\x1b[1mdone\x1b[0m\r\n$ "
        );
        let long = vec![b'x'; 3 * MOST];
        assert_eq!(shown(&[&long]).len(), MOST);
    }

    #[test]
    fn a_whole_screen_is_left_to_its_program() {
        let clear = b"\x1b[?1049h\x1b[H\x1b[2J".as_slice();
        assert_eq!(shown(&[b"$ vim\r\n\x1b[?10", b"49h~\r\n~\r\n"]), clear);
        assert_eq!(shown(&[b"$ vim\r\n\x1b[?1049h~\x1b[?1049l$ "]), b"$ ");
        let long = vec![b'~'; 2 * MOST];
        assert_eq!(shown(&[b"\x1b[?1049h", &long]), clear);
    }

    #[test]
    fn questions_are_not_asked_twice() {
        assert_eq!(shown(&[b"a\x1b[6nb\x1b[>0cc\x1b[31md\x1b[5"]), b"abc\x1b[31md");
    }
}
