//! A dereference may be a call.

struct Pages {
    lines: Lines,
}

struct Lines {
    count: u64,
}

impl std::ops::Deref for Pages {
    type Target = Lines;

    fn deref(&self) -> &Lines {
        print!("looked");
        &self.lines
    }
}

impl Pages {
    //~ instant: `deref`: `print!` writes
    fn through(&mut self) {
        self.lines.count = 3;
    }

    //~ deferrable
    fn none(&mut self) {}
}
