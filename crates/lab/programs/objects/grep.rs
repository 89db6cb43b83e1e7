//! Grep: the lines of a text that hold a word.

/// Lines, and those that match.
#[derive(Default)]
pub struct Grep {
    lines: Vec<String>,
    matching: Vec<String>,
}

impl Grep {
    /// A line.
    pub fn read(&mut self, line: String) {
        self.lines.push(line);
    }

    /// Keeps the lines that hold the pattern.
    pub fn filter(&mut self, pattern: String) {
        let holds = |line: &String| line.contains(pattern.as_str());
        self.matching.extend(self.lines.drain(..).filter(holds));
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.matching.len()
    }

    /// The lines that matched.
    pub fn matching(&self) -> Vec<String> {
        self.matching.clone()
    }
}
