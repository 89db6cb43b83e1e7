// SQLite in memory, called from C: a ledger whose sum never changes, an index, a full-scan check, and
// many rolled back transactions; every balance has a copy in a plain array.
//
// Usage: c_sqlite [ROUNDS]
#include "check.h"

#include <sqlite3.h>

enum { ACCOUNTS = 5000, TRANSFERS = 900 };

static int64_t shadow[ACCOUNTS];
static uint64_t random_state = 23;
static sqlite3 *db;

static void run(const char *sql) {
    char *message = NULL;
    int e = sqlite3_exec(db, sql, NULL, NULL, &message);
    CHECK(e == SQLITE_OK, "%s: %s", sql, message ? message : "?");
}

static sqlite3_stmt *prepare(const char *sql) {
    sqlite3_stmt *statement;
    CHECK(sqlite3_prepare_v2(db, sql, -1, &statement, NULL) == SQLITE_OK, "%s", sqlite3_errmsg(db));
    return statement;
}

static int64_t one_number(const char *sql) {
    sqlite3_stmt *statement = prepare(sql);
    CHECK(sqlite3_step(statement) == SQLITE_ROW, "%s", sql);
    int64_t number = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    return number;
}

static void add(sqlite3_stmt *update, int64_t amount, int account) {
    sqlite3_bind_int64(update, 1, amount);
    sqlite3_bind_int(update, 2, account);
    CHECK(sqlite3_step(update) == SQLITE_DONE, "update: %s", sqlite3_errmsg(db));
    CHECK(sqlite3_changes(db) == 1, "an update touched %d rows", sqlite3_changes(db));
    sqlite3_reset(update);
}

static void transfer(sqlite3_stmt *update) {
    uint64_t r = next_random(&random_state);
    int from = (int)(r % ACCOUNTS), to = (int)((r >> 16) % ACCOUNTS);
    int64_t amount = (int64_t)(r >> 40) % 1000;
    run("BEGIN");
    add(update, -amount, from);
    add(update, amount, to);
    if (r >> 61 == 0) {
        run("ROLLBACK");
        return;
    }
    run("COMMIT");
    shadow[from] -= amount, shadow[to] += amount;
}

static uint64_t audit(uint64_t digest) {
    CHECK(one_number("SELECT sum(balance) FROM ledger") == 0, "the ledger does not sum to zero");
    CHECK(one_number("SELECT count(*) FROM ledger INDEXED BY by_balance WHERE balance > -1e18") == ACCOUNTS,
          "the index lost rows");
    sqlite3_stmt *all = prepare("SELECT id, balance, note FROM ledger ORDER BY id");
    for (int id = 0; id < ACCOUNTS; id++) {
        CHECK(sqlite3_step(all) == SQLITE_ROW && sqlite3_column_int(all, 0) == id, "account %d is missing", id);
        CHECK(sqlite3_column_int64(all, 1) == shadow[id], "account %d has another balance than its copy", id);
        CHECK(sqlite3_column_bytes(all, 2) == 40 + id % 100, "the note of account %d", id);
        digest = fold(digest, (uint64_t)shadow[id]);
    }
    sqlite3_finalize(all);
    return digest;
}

int main(int argc, char **argv) {
    long rounds = scale(argc, argv, 350);
    CHECK(sqlite3_open(":memory:", &db) == SQLITE_OK, "sqlite3_open");
    run("CREATE TABLE ledger (id INTEGER PRIMARY KEY, balance INTEGER, note TEXT)");
    run("CREATE INDEX by_balance ON ledger (balance)");
    run("BEGIN");
    sqlite3_stmt *insert = prepare("INSERT INTO ledger VALUES (?1, 0, substr(?2, 1, 40 + ?1 % 100))");
    char note[201];
    memset(note, 'n', 200), note[200] = 0;
    for (int id = 0; id < ACCOUNTS; id++) {
        sqlite3_bind_int(insert, 1, id);
        sqlite3_bind_text(insert, 2, note, -1, SQLITE_STATIC);
        CHECK(sqlite3_step(insert) == SQLITE_DONE, "insert: %s", sqlite3_errmsg(db));
        sqlite3_reset(insert);
    }
    sqlite3_finalize(insert);
    run("COMMIT");
    sqlite3_stmt *update = prepare("UPDATE ledger SET balance = balance + ?1 WHERE id = ?2");
    uint64_t digest = 0;
    for (long round = 1; round <= rounds; round++) {
        for (int i = 0; i < TRANSFERS; i++) transfer(update);
        digest = audit(digest);
        printf("round %ld of %ld: %016llx\n", round, rounds, (unsigned long long)digest);
        fflush(stdout);
    }
    sqlite3_finalize(update);
    sqlite3_close(db);
    printf("digest %016llx\n", (unsigned long long)digest);
    return 0;
}
