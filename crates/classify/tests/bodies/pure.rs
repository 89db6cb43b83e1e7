//! Bodies that touch only the object, their arguments and locals.

const LIMIT: usize = 8;

struct Scores {
    rows: Vec<Row>,
    names: BTreeMap<String, usize>,
    best: Option<i64>,
    text: String,
}

#[derive(Clone, Default, PartialEq)]
struct Row {
    cells: [i64; 4],
}

enum Step {
    Up(i64),
    Down { by: i64 },
    Stay,
}

impl Scores {
    //~ deferrable
    fn nothing(&mut self) {}

    //~ deferrable
    fn set(&mut self, row: usize, at: usize, value: i64) {
        self.rows[row].cells[at] = value;
    }

    //~ deferrable
    fn add_all(&mut self, by: i64) {
        for row in &mut self.rows {
            for cell in &mut row.cells {
                *cell += by;
            }
        }
    }

    //~ deferrable
    fn iterators(&mut self, by: i64) {
        self.rows.iter_mut().flat_map(|row| row.cells.iter_mut()).filter(|cell| **cell > 0).for_each(|cell| *cell += by);
    }

    //~ deferrable
    fn best_of_all(&mut self) {
        self.best = self.rows.iter().map(|row| row.cells.iter().sum::<i64>()).max();
    }

    //~ deferrable
    fn names(&mut self, name: String) {
        let next = self.names.len();
        self.names.entry(name).or_insert(next);
    }

    //~ deferrable
    fn text(&mut self, word: String) {
        self.text.push_str(word.trim());
        self.text = format!("{} {word:>8} {}", self.text, self.rows.len());
    }

    //~ deferrable
    fn written(&mut self, value: u64) {
        use std::fmt::Write;
        write!(self.text, "{value:x}").expect("a string takes all");
    }

    //~ deferrable
    fn options(&mut self) {
        if let Some(best) = self.best.take() {
            self.best = best.checked_add(1).or(Some(0));
        }
    }

    //~ deferrable
    fn sorted(&mut self) {
        self.rows.sort_by(|a, b| a.cells[0].cmp(&b.cells[0]).reverse());
        self.rows.dedup();
    }

    //~ deferrable
    fn bounded(&mut self, row: Row) {
        if self.rows.len() < LIMIT {
            self.rows.push(row);
        }
    }

    //~ deferrable
    fn constants(&mut self) {
        self.best = Some(i64::MAX / 2 + i64::from(u8::MAX));
        let _ = std::f64::consts::PI * f64::EPSILON;
    }

    //~ deferrable
    fn swapped(&mut self, a: usize, b: usize) {
        self.rows.swap(a, b);
        let old = std::mem::take(&mut self.text);
        self.text = old.to_uppercase();
    }

    //~ deferrable
    fn stepped(&mut self, step: Step) {
        match step {
            Step::Up(by) => self.best = self.best.map(|best| best + by),
            Step::Down { by } if by > 0 => self.best = self.best.map(|best| best - by),
            Step::Down { .. } | Step::Stay => {}
        }
    }

    //~ deferrable
    fn made(&mut self) {
        self.rows.push(Row { cells: [1, 2, 3, 4] });
        self.rows.push(Row::default());
        let copy = self.rows[0].clone();
        self.rows.extend([copy]);
    }

    //~ deferrable
    fn panics(&mut self, row: usize) {
        assert!(row < self.rows.len(), "there are {} rows", self.rows.len());
        assert_eq!(self.rows[row].cells.len(), 4);
        if self.rows.is_empty() {
            unreachable!("checked above");
        }
    }

    //~ deferrable
    fn vectors(&mut self, n: usize) {
        let zeros = vec![0_u8; n];
        let few: Vec<u8> = vec![1, 2, 3];
        self.text = String::from_utf8([zeros, few].concat()).unwrap_or_default();
    }

    //~ deferrable
    fn chosen(&mut self) {
        if matches!(self.best, Some(best) if best > 3) && matches!(self.rows.first(), Some(_)) {
            self.best = None;
        }
    }

    //~ deferrable
    fn closures(&mut self, by: i64) {
        let twice = |value: i64| value * 2 * by;
        self.best = self.best.map(twice);
        self.best = Some(twice(4));
    }

    //~ deferrable
    fn inner(&mut self, by: i64) {
        fn twice(value: i64) -> i64 {
            value * 2
        }
        self.best = Some(twice(by));
    }

    //~ deferrable
    fn looped(&mut self) {
        let mut at = 0;
        while at < self.rows.len() {
            at += 1;
            if at == 3 {
                continue;
            }
            loop {
                break;
            }
        }
    }

    //~ deferrable
    fn returns_early(&mut self) {
        let Some(best) = self.best else { return };
        self.best = Some(best.pow(2));
    }

    //~ deferrable
    fn parsed(&mut self, text: String) {
        if let Ok(number) = text.parse::<i64>() {
            self.best = Some(number);
        }
    }

    //~ deferrable
    fn by_function(&mut self, values: Vec<u8>) {
        self.best = values.into_iter().map(i64::from).max();
        let _: Vec<String> = self.rows.iter().map(|row| row.cells[0]).map(|cell| cell.to_string()).collect();
    }

    //~ deferrable
    fn floats(&mut self, x: f64) {
        self.best = Some((x.sin().abs() * 100.0).round() as i64);
    }

    //~ deferrable
    fn shadows(&mut self) {
        let fs = 3;
        let best = fs + 1;
        self.best = Some(best);
    }

    //~ deferrable
    fn spans(&mut self, span: std::time::Duration) {
        self.best = Some(span.as_secs() as i64);
    }

    //~ deferrable
    fn heaps(&mut self) {
        let mut heap = std::collections::BinaryHeap::new();
        heap.extend(self.rows.iter().map(|row| std::cmp::Reverse(row.cells[1])));
        while heap.pop().is_some() {}
    }

    //~ deferrable
    fn of_the_library(&mut self, key: u64) {
        let mut map = twinpage::collections::HashMap::new_in(self.heap);
        map.insert(key, 1);
    }

    //~ deferrable
    fn unit(&mut self) -> () {
        self.rows.clear()
    }
}
