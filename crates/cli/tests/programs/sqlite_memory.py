"""SQLite in memory from Python: TPC-B-like transactions whose books must balance.

Every transaction moves money through an account, its teller and its branch, and writes a history row;
some are rolled back on purpose. After each batch the four sums must be equal, the database must pass its
own integrity check, and a model kept in Python dictionaries must agree. Usage: sqlite_memory.py [ROUNDS]
"""

import hashlib
import os
import random
import sqlite3
import sys

BRANCHES, TELLERS, ACCOUNTS = 4, 40, 4000


def check(holds, what):
    """End the whole program when its own data is wrong."""
    if not holds:
        sys.stderr.write(f"sqlite_memory.py: does not hold: {what}\n")
        sys.stderr.flush()
        os.abort()


def create():
    """An in-memory database with everything at zero."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.executescript(
        """
        CREATE TABLE branch (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL DEFAULT 0);
        CREATE TABLE teller (id INTEGER PRIMARY KEY, branch INTEGER NOT NULL, balance INTEGER NOT NULL DEFAULT 0);
        CREATE TABLE account (id INTEGER PRIMARY KEY, branch INTEGER NOT NULL, balance INTEGER NOT NULL DEFAULT 0,
                              filler TEXT NOT NULL);
        CREATE TABLE history (id INTEGER PRIMARY KEY, account INTEGER, teller INTEGER, branch INTEGER, delta INTEGER);
        CREATE INDEX account_balance ON account (balance, id);
        """
    )
    db.executemany("INSERT INTO branch (id) VALUES (?)", ((i,) for i in range(BRANCHES)))
    db.executemany("INSERT INTO teller (id, branch) VALUES (?, ?)", ((i, i % BRANCHES) for i in range(TELLERS)))
    filler = ((i, i % BRANCHES, f"account {i} " * 8) for i in range(ACCOUNTS))
    db.executemany("INSERT INTO account (id, branch, filler) VALUES (?, ?, ?)", filler)
    return db


def transaction(db, chance, model, number):
    """One transfer; one in ten is rolled back and must leave no trace."""
    account, teller, delta = chance.randrange(ACCOUNTS), chance.randrange(TELLERS), chance.randrange(-5000, 5000)
    branch = teller % BRANCHES
    db.execute("BEGIN")
    db.execute("UPDATE account SET balance = balance + ? WHERE id = ?", (delta, account))
    (balance,) = db.execute("SELECT balance FROM account WHERE id = ?", (account,)).fetchone()
    db.execute("UPDATE teller SET balance = balance + ? WHERE id = ?", (delta, teller))
    db.execute("UPDATE branch SET balance = balance + ? WHERE id = ?", (delta, branch))
    db.execute(
        "INSERT INTO history (account, teller, branch, delta) VALUES (?, ?, ?, ?)", (account, teller, branch, delta)
    )
    check(balance == model.get(account, 0) + delta, f"the balance of account {account} in transaction {number}")
    if chance.randrange(10) == 0:
        db.execute("ROLLBACK")
        return
    db.execute("COMMIT")
    model[account] = balance


def audit(db, model):
    """All sums are equal, the model agrees, and the index gives what the table holds."""
    sums = [db.execute(f"SELECT coalesce(sum({column}), 0) FROM {table}").fetchone()[0] for table, column in (
        ("branch", "balance"), ("teller", "balance"), ("account", "balance"), ("history", "delta"))]
    check(len(set(sums)) == 1, f"the books do not balance: {sums}")
    check(sum(model.values()) == sums[0], "the model disagrees with the books")
    (verdict,) = db.execute("PRAGMA integrity_check").fetchone()
    check(verdict == "ok", f"the integrity check says {verdict}")
    return sums[0]


def main():
    """Run batches of transactions and audit each."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 350
    chance, model, db = random.Random(17), {}, create()
    digest = hashlib.sha256()
    for number in range(1, rounds + 1):
        for i in range(350):
            transaction(db, chance, model, number * 1000 + i)
        total = audit(db, model)
        if number % 10 == 0:
            db.execute("DELETE FROM history WHERE id % 3 = 0 AND account NOT IN (SELECT account FROM history LIMIT 1)")
            db.execute("DELETE FROM history")
            db.execute("INSERT INTO history (delta) VALUES (?)", (total,))
            db.execute("VACUUM")
        for row in db.execute("SELECT id, balance FROM account ORDER BY balance, id LIMIT 200"):
            digest.update(repr(row).encode())
        print(f"round {number} of {rounds}: total {total} {digest.hexdigest()[:16]}", flush=True)
    print(f"digest {digest.hexdigest()}")


main()
