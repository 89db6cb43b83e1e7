//! What a signature says, marks, macros, and code that is not followed.

struct Account {
    balance: i64,
    rows: Vec<i64>,
}

macro_rules! twice {
    ($what:expr) => {
        $what * 2
    };
}

impl Account {
    //~ instant: it returns `i64`
    fn balance(&self) -> i64 {
        self.balance
    }

    //~ instant: it returns `Option<&'a mut i64>`
    fn row<'a>(&'a mut self, at: usize) -> Option<&'a mut i64> {
        self.rows.get_mut(at)
    }

    //~ instant: it returns `Result<(), String>`
    fn checked(&mut self) -> Result<(), String> {
        self.balance.checked_add(1).ok_or(String::new())?;
        Ok(())
    }

    //~ instant: it takes the object itself
    fn close(self) {}

    //~ instant: an `async` method
    async fn later(&mut self) {
        self.balance += 1;
    }

    //~ instant: it waits for another task
    async fn waits(&mut self, other: Task) {
        other.await;
    }

    //~ deferrable
    fn ends(&mut self) -> ! {
        panic!("there is no way on")
    }

    //~ deferrable
    fn reads_and_returns_nothing(&self) {
        let _ = self.balance;
    }

    //~ instant: it is marked #[instant]
    #[instant]
    fn marked(&mut self) {
        self.balance = 0;
    }

    //~ deferrable
    #[deferrable]
    fn promised(&mut self) -> i64 {
        self.balance = elsewhere::rate();
        self.balance
    }

    //~ deferrable
    #[twinpage::deferrable]
    fn promised_by_path(&mut self) {
        elsewhere::tell();
    }

    //~ deferrable
    #[lane(rows)]
    fn add(row: &mut i64, by: i64) {
        *row += by;
    }

    //~ instant: reads or writes files
    #[lane(rows)]
    fn store(row: &mut i64) {
        std::fs::write("row", row.to_string()).unwrap();
    }

    //~ instant: the macro `twice!`
    fn by_macro(&mut self) {
        self.balance = twice!(self.balance);
    }

    //~ instant: the macro `elsewhere::log!`
    fn logged(&mut self) {
        elsewhere::log!("changed");
    }

    //~ instant: writes to the program's output
    fn inside_a_macro(&mut self) {
        assert!(self.balance > 0, "{}", { println!("bad"); 3 });
    }

    //~ instant: `std::fs::metadata` reads or writes files
    fn inside_a_guard(&mut self) {
        if matches!(self.balance, 3 if std::fs::metadata("a").is_ok()) {
            self.balance = 4;
        }
    }

    //~ instant: `unsafe` code may touch anything
    fn unchecked(&mut self) {
        self.balance = unsafe { *self.rows.get_unchecked(0) };
    }

    //~ instant: an address may be another
    fn raw(&mut self) {
        let _ = &raw mut self.balance;
    }

    //~ instant: `env` | asks for the environment
    fn hidden_in_a_closure(&mut self) {
        self.rows.retain(|row| std::env::var("KEEP").is_ok_and(|keep| keep == row.to_string()));
    }

    //~ instant: `.lock()` waits for other threads
    fn locked(&mut self, other: Guarded) {
        self.balance = *other.lock().unwrap();
    }

    //~ instant: does input or output
    fn written(&mut self, out: Box<dyn std::io::Write>) {
        drop(out);
    }

    fn new() -> Account {
        Account { balance: 0, rows: Vec::new() }
    }
}
