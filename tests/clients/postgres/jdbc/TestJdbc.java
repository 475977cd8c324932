// PostgreSQL's JDBC driver as it is published, with its defaults, against `ropewalk serve --postgres-listen`.
// Run by `java -cp DRIVER TestJdbc.java URL`; prints a line for each test that passed and ends with 1 when one did not.

import java.io.StringReader;
import java.io.StringWriter;
import java.math.BigDecimal;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.time.LocalDate;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.Properties;
import java.util.UUID;
import org.postgresql.PGConnection;

class TestJdbc {
    interface Test {
        void run(Connection db) throws Exception;
    }

    static int failed;
    static String url;

    public static void main(String[] arguments) throws Exception {
        url = arguments[0];
        run("values come back as they went", TestJdbc::values);
        run("a transaction is one or none", TestJdbc::transactions);
        run("batches and generated keys", TestJdbc::batches);
        run("rows come in portions", TestJdbc::portions);
        run("COPY both ways", TestJdbc::copies);
        run("errors have their codes", TestJdbc::errors);
        run("tables, columns and keys are described", TestJdbc::metadata);
        System.exit(failed == 0 ? 0 : 1);
    }

    static void run(String name, Test test) throws Exception {
        try (Connection db = connect()) {
            test.run(db);
            System.out.println("ok " + name);
        } catch (Exception | AssertionError error) {
            failed++;
            System.out.println("FAILED " + name);
            error.printStackTrace(System.out);
        }
    }

    static Connection connect() throws SQLException {
        Properties properties = new Properties();
        properties.setProperty("user", "ann");
        properties.setProperty("ApplicationName", "shop");
        return DriverManager.getConnection(url, properties);
    }

    static void equal(Object found, Object expected) {
        if (!Objects.deepEquals(found, expected)) {
            throw new AssertionError("found " + found + ", expected " + expected);
        }
    }

    static void execute(Connection db, String... statements) throws SQLException {
        try (Statement statement = db.createStatement()) {
            for (String sql : statements) {
                statement.execute(sql);
            }
        }
    }

    /** Rows as text, columns apart by `|`. */
    static List<String> rows(ResultSet found, String... columns) throws SQLException {
        List<String> rows = new ArrayList<>();
        while (found.next()) {
            List<String> row = new ArrayList<>();
            if (columns.length == 0) {
                for (int n = 1; n <= found.getMetaData().getColumnCount(); n++) {
                    row.add(found.getString(n));
                }
            }
            for (String column : columns) {
                row.add(found.getString(column));
            }
            rows.add(String.join("|", row.stream().map(String::valueOf).toList()));
        }
        return rows;
    }

    static List<String> query(Connection db, String sql) throws SQLException {
        try (Statement statement = db.createStatement(); ResultSet found = statement.executeQuery(sql)) {
            return rows(found);
        }
    }

    static void values(Connection db) throws Exception {
        execute(db, "CREATE TABLE kinds (id bigint PRIMARY KEY, b boolean, i integer, s smallint, n numeric(10,2), d double precision, "
            + "t text, day date, at timestamptz, y bytea, u uuid, a integer[])");
        OffsetDateTime at = OffsetDateTime.of(2024, 2, 29, 1, 2, 3, 4000, ZoneOffset.UTC);
        UUID uuid = UUID.fromString("00112233-4455-6677-8899-aabbccddeeff");
        LocalDate day = LocalDate.of(1969, 12, 31);
        // Beyond the fifth run the driver prepares it, and asks for binary.
        for (int id = 0; id < 12; id++) {
            try (PreparedStatement insert = db.prepareStatement("INSERT INTO kinds VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")) {
                insert.setLong(1, id);
                insert.setBoolean(2, true);
                insert.setInt(3, -5);
                insert.setShort(4, (short) 7);
                insert.setBigDecimal(5, new BigDecimal("12.50"));
                insert.setDouble(6, 1.5);
                insert.setString(7, "äöü'\n");
                insert.setObject(8, day);
                insert.setObject(9, at);
                insert.setBytes(10, new byte[] {0, -1});
                insert.setObject(11, uuid);
                insert.setArray(12, db.createArrayOf("int4", new Integer[] {1, null, 3}));
                equal(insert.executeUpdate(), 1);
            }
        }
        try (PreparedStatement select = db.prepareStatement("SELECT * FROM kinds WHERE id = ?")) {
            for (int id = 0; id < 12; id++) {
                select.setLong(1, id);
                try (ResultSet row = select.executeQuery()) {
                    equal(row.next(), true);
                    equal(row.getLong("id"), (long) id);
                    equal(row.getBoolean("b"), true);
                    equal(row.getInt("i"), -5);
                    equal(row.getShort("s"), (short) 7);
                    equal(row.getBigDecimal("n"), new BigDecimal("12.50"));
                    equal(row.getDouble("d"), 1.5);
                    equal(row.getString("t"), "äöü'\n");
                    equal(row.getObject("day", LocalDate.class), day);
                    equal(row.getObject("at", OffsetDateTime.class), at);
                    equal(row.getBytes("y"), new byte[] {0, -1});
                    equal(row.getObject("u"), uuid);
                    equal(row.getArray("a").getArray(), new Integer[] {1, null, 3});
                    equal(row.next(), false);
                }
            }
        }
    }

    static void transactions(Connection db) throws Exception {
        execute(db, "CREATE TABLE counted (id integer PRIMARY KEY, n integer NOT NULL)");
        db.setAutoCommit(false);
        execute(db, "INSERT INTO counted VALUES (1, 1)");
        db.rollback();
        equal(query(db, "SELECT count(*) FROM counted"), List.of("0"));
        execute(db, "INSERT INTO counted VALUES (1, 1)");
        Savepoint savepoint = db.setSavepoint("before");
        try {
            execute(db, "INSERT INTO counted VALUES (1, 1)");
            throw new AssertionError("a key twice");
        } catch (SQLException error) {
            equal(error.getSQLState(), "23505");
            db.rollback(savepoint);
        }
        db.commit();
        db.setTransactionIsolation(Connection.TRANSACTION_SERIALIZABLE);
        try (Connection other = connect()) {
            execute(db, "UPDATE counted SET n = n + 1");
            execute(other, "UPDATE counted SET n = n + 10");
            db.commit();
            throw new AssertionError("both");
        } catch (SQLException error) {
            equal(error.getSQLState(), "40001");
        }
        db.rollback();
        equal(query(db, "SELECT * FROM counted"), List.of("1|11"));
    }

    static void batches(Connection db) throws Exception {
        execute(db, "CREATE TABLE orders (id integer GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, what text)");
        try (PreparedStatement insert = db.prepareStatement("INSERT INTO orders (what) VALUES (?)", Statement.RETURN_GENERATED_KEYS)) {
            for (int n = 0; n < 100; n++) {
                insert.setString(1, "w" + n);
                insert.addBatch();
            }
            equal(Arrays.stream(insert.executeBatch()).sum(), 100);
            try (ResultSet keys = insert.getGeneratedKeys()) {
                equal(rows(keys, "id").size(), 100);
            }
        }
        try (PreparedStatement select = db.prepareStatement("SELECT count(*) FROM orders WHERE what = ANY (?)")) {
            select.setArray(1, db.createArrayOf("text", new String[] {"w1", "w2", "none"}));
            try (ResultSet found = select.executeQuery()) {
                equal(rows(found), List.of("2"));
            }
        }
    }

    static void portions(Connection db) throws Exception {
        execute(db, "CREATE TABLE many (id integer PRIMARY KEY)");
        try (PreparedStatement insert = db.prepareStatement("INSERT INTO many VALUES (?)")) {
            for (int n = 0; n < 1000; n++) {
                insert.setInt(1, n);
                insert.addBatch();
            }
            insert.executeBatch();
        }
        db.setAutoCommit(false);
        try (Statement select = db.createStatement()) {
            select.setFetchSize(30);
            try (ResultSet found = select.executeQuery("SELECT id FROM many ORDER BY id")) {
                equal(rows(found).size(), 1000);
            }
            select.setMaxRows(7);
            try (ResultSet found = select.executeQuery("SELECT id FROM many ORDER BY id")) {
                equal(rows(found).size(), 7);
            }
        }
        db.commit();
    }

    static void copies(Connection db) throws Exception {
        execute(db, "CREATE TABLE copied (id integer PRIMARY KEY, t text)");
        var copy = db.unwrap(PGConnection.class).getCopyAPI();
        equal(copy.copyIn("COPY copied FROM STDIN (FORMAT csv)", new StringReader("1,a\n2,\"b, c\"\n")), 2L);
        StringWriter out = new StringWriter();
        equal(copy.copyOut("COPY copied TO STDOUT", out), 2L);
        equal(out.toString(), "1\ta\n2\tb, c\n");
    }

    static void errors(Connection db) throws Exception {
        for (String[] pair : new String[][] {{"SELECT 1/0", "22012"}, {"SELECT * FROM nowhere", "42P01"}, {"SELEC", "42601"}}) {
            try {
                query(db, pair[0]);
                throw new AssertionError(pair[0]);
            } catch (SQLException error) {
                equal(error.getSQLState(), pair[1]);
            }
        }
        try (Statement slow = db.createStatement()) {
            slow.setQueryTimeout(1);
            slow.execute("SELECT pg_sleep(60)");
            throw new AssertionError("slept");
        } catch (SQLException error) {
            equal(error.getSQLState(), "57014");
        }
    }

    static void metadata(Connection db) throws Exception {
        execute(db,
            "CREATE TABLE authors (id serial PRIMARY KEY, name varchar(60) NOT NULL UNIQUE, born date)",
            "CREATE TABLE books (id bigint PRIMARY KEY, title text NOT NULL, price numeric(8,2) DEFAULT 0, "
                + "author_id integer NOT NULL REFERENCES authors (id) ON DELETE CASCADE, tags text[])",
            "CREATE INDEX books_author ON books (author_id)",
            "CREATE VIEW dear AS SELECT title FROM books WHERE price > 10");
        DatabaseMetaData about = db.getMetaData();
        equal(about.getDatabaseProductName(), "PostgreSQL");
        equal(rows(about.getTables(null, "public", "%o%", new String[] {"TABLE", "VIEW"}), "TABLE_NAME", "TABLE_TYPE").contains("books|TABLE"), true);
        equal(rows(about.getTables(null, "public", "dear", null), "TABLE_NAME", "TABLE_TYPE"), List.of("dear|VIEW"));
        equal(rows(about.getColumns(null, "public", "books", "%"), "COLUMN_NAME", "TYPE_NAME", "COLUMN_SIZE", "DECIMAL_DIGITS", "IS_NULLABLE", "ORDINAL_POSITION"), List.of(
            "id|int8|19|0|NO|1", "title|text|2147483647|0|NO|2", "price|numeric|8|2|YES|3", "author_id|int4|10|0|NO|4", "tags|_text|2147483647|0|YES|5"));
        equal(rows(about.getColumns(null, "public", "authors", "name"), "TYPE_NAME", "COLUMN_SIZE"), List.of("varchar|60"));
        equal(rows(about.getPrimaryKeys(null, "public", "books"), "COLUMN_NAME", "KEY_SEQ", "PK_NAME"), List.of("id|1|books_pkey"));
        String[] key = {"PKTABLE_NAME", "PKCOLUMN_NAME", "FKTABLE_NAME", "FKCOLUMN_NAME", "DELETE_RULE", "FK_NAME", "PK_NAME"};
        List<String> keys = List.of("authors|id|books|author_id|0|books_author_id_fkey|authors_pkey");
        equal(rows(about.getImportedKeys(null, "public", "books"), key), keys);
        equal(rows(about.getExportedKeys(null, "public", "authors"), key), keys);
        equal(rows(about.getIndexInfo(null, "public", "books", false, true), "INDEX_NAME", "NON_UNIQUE", "COLUMN_NAME"), List.of(
            "books_pkey|f|id", "books_author|t|author_id"));
        equal(rows(about.getSchemas(), "TABLE_SCHEM").contains("public"), true);
        equal(rows(about.getTypeInfo(), "TYPE_NAME").containsAll(List.of("int4", "text", "numeric")), true);
    }
}
