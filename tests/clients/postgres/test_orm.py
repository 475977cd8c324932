"""SQLAlchemy 2 (core, ORM, reflection) and asyncpg as they come from their projects, against `ropewalk serve --postgres-listen`."""

import asyncio
import datetime
import decimal
import sys
import unittest
from pathlib import Path
from typing import Optional

import asyncpg
import sqlalchemy as sa
from sqlalchemy import orm

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from servers import Server, WithPostgres, binary  # noqa: E402


class Base(orm.DeclarativeBase):
    pass


class Author(Base):
    __tablename__ = "authors"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    name: orm.Mapped[str] = orm.mapped_column(sa.String(60), unique=True)
    born: orm.Mapped[Optional[datetime.date]]
    books: orm.Mapped[list["Book"]] = orm.relationship(back_populates="author", cascade="all, delete-orphan")


class Book(Base):
    __tablename__ = "books"
    id: orm.Mapped[int] = orm.mapped_column(sa.BigInteger, sa.Identity(), primary_key=True)
    title: orm.Mapped[str]
    price: orm.Mapped[decimal.Decimal] = orm.mapped_column(sa.Numeric(8, 2), server_default="0")
    printed: orm.Mapped[datetime.datetime] = orm.mapped_column(sa.DateTime(timezone=True), server_default=sa.func.now())
    author_id: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey("authors.id", ondelete="CASCADE"), index=True)
    author: orm.Mapped[Author] = orm.relationship(back_populates="books")
    __table_args__ = (sa.CheckConstraint("price >= 0", name="books_price"),)


class SqlAlchemy(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(binary(), options=["--postgres-listen", "127.0.0.1:0"])
        cls.url = f"postgresql+psycopg://ann@{cls.server.postgres}/ropewalk"
        cls.engine = sa.create_engine(cls.url)
        Base.metadata.create_all(cls.engine)

    @classmethod
    def tearDownClass(cls):
        cls.engine.dispose()
        assert cls.server.stop()

    def test_objects_there_and_back(self):
        with orm.Session(self.engine) as session, session.begin():
            session.execute(sa.delete(Author))
            ann = Author(name="Ann", born=datetime.date(1970, 1, 2))
            ann.books = [Book(title="One", price=decimal.Decimal("1.50")), Book(title="Two")]
            session.add_all([ann, Author(name="Bob")])
        with orm.Session(self.engine) as session:
            query = sa.select(Author).options(orm.selectinload(Author.books)).order_by(Author.name)
            ann, bob = session.scalars(query).all()
            self.assertEqual([book.title for book in ann.books], ["One", "Two"])
            self.assertEqual([book.price for book in ann.books], [decimal.Decimal("1.50"), decimal.Decimal("0.00")])
            self.assertIsNotNone(ann.books[0].printed.tzinfo)
            self.assertEqual((ann.born, bob.born, bob.books), (datetime.date(1970, 1, 2), None, []))
            ann.books[0].price += 1
            ann.books.pop()
            session.commit()
            found = session.execute(
                sa.select(Author.name, sa.func.count(Book.id), sa.func.sum(Book.price))
                .join(Book, isouter=True).group_by(Author.name).order_by(Author.name)
            ).all()
            self.assertEqual([tuple(row) for row in found], [("Ann", 1, decimal.Decimal("2.50")), ("Bob", 0, None)])
            session.delete(ann)
            session.commit()
            self.assertEqual(session.scalar(sa.select(sa.func.count()).select_from(Book)), 0)

    def test_a_failed_flush_is_rolled_back(self):
        with orm.Session(self.engine) as session:
            session.add(Author(name="Cy"))
            session.commit()
            session.add(Author(name="Cy"))
            with self.assertRaises(sa.exc.IntegrityError):
                session.flush()
            session.rollback()
            with self.assertRaises(sa.exc.IntegrityError), session.begin_nested():
                session.add(Author(name="Cy"))
                session.flush()
            session.add(Author(name="Di"))
            session.commit()
            names = session.scalars(sa.select(Author.name).where(Author.name.in_(["Cy", "Di"])).order_by(Author.name))
            self.assertEqual(names.all(), ["Cy", "Di"])

    def test_core(self):
        notes = sa.Table(
            "notes", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("body", sa.Text),
            sa.Column("tags", sa.ARRAY(sa.Text)), sa.Column("at", sa.DateTime),
        )
        moment = datetime.datetime(2024, 2, 29, 1, 2, 3, 4)
        with self.engine.begin() as db:
            notes.create(db)
            rows = [{"body": f"n{n}", "tags": ["a", str(n % 3)], "at": moment} for n in range(100)]
            inserted = db.execute(notes.insert().returning(notes.c.id), rows).scalars().all()
            self.assertEqual(len(set(inserted)), 100)
            upsert = sa.dialects.postgresql.insert(notes).values(id=inserted[0], body="x")
            upsert = upsert.on_conflict_do_update(index_elements=["id"], set_={"body": upsert.excluded.body + "!"})
            db.execute(upsert)
            found = db.execute(sa.select(notes.c.body, notes.c.at).where(notes.c.id == inserted[0])).one()
            self.assertEqual(tuple(found), ("x!", moment))
            numbered = sa.select(notes.c.id, sa.func.row_number().over(order_by=notes.c.id).label("n")).cte("numbered")
            self.assertEqual(db.scalar(sa.select(sa.func.max(numbered.c.n))), 100)
            self.assertEqual(db.scalar(sa.select(sa.func.count()).where(sa.literal("2") == sa.any_(notes.c.tags))), 33)
            self.assertEqual(db.execute(notes.delete().where(notes.c.id.in_(inserted[:10]))).rowcount, 10)
        with self.engine.begin() as db:
            notes.drop(db)

    def test_streamed_results(self):
        with self.engine.connect() as db:
            db.execute(sa.text("CREATE TABLE many (id int PRIMARY KEY)"))
            db.execute(sa.text("INSERT INTO many SELECT generate_series(1, 5000)"))
            db.commit()
            query = sa.text("SELECT id FROM many WHERE id > :least ORDER BY id")
            options = {"stream_results": True, "max_row_buffer": 500}
            rows = db.execute(query, {"least": 10}, execution_options=options)
            self.assertEqual([len(part) for part in rows.partitions(1000)], [1000] * 4 + [990])
            with orm.Session(self.engine) as session:
                total = sum(session.scalars(sa.text("SELECT id FROM many")).yield_per(100))
            self.assertEqual(total, sum(range(5001)))
            db.execute(sa.text("DROP TABLE many"))
            db.commit()

    def test_reflection(self):
        inspector = sa.inspect(self.engine)
        self.assertEqual(inspector.get_table_names(), ["authors", "books"])
        self.assertTrue(inspector.has_table("books"))
        self.assertFalse(inspector.has_table("nowhere"))
        self.assertEqual(inspector.get_schema_names(), ["information_schema", "public"])
        self.assertEqual(inspector.get_pk_constraint("books")["constrained_columns"], ["id"])
        [foreign] = inspector.get_foreign_keys("books")
        self.assertEqual(
            (foreign["constrained_columns"], foreign["referred_table"], foreign["options"]),
            (["author_id"], "authors", {"ondelete": "CASCADE"}),
        )
        # The index that the foreign key brought is no business of whoever compares definitions.
        self.assertEqual(["ix_books_author_id"], [index["name"] for index in inspector.get_indexes("books")])
        self.assertEqual([u["column_names"] for u in inspector.get_unique_constraints("authors")], [["name"]])
        self.assertEqual([check["name"] for check in inspector.get_check_constraints("books")], ["books_price"])
        self.assertEqual(inspector.get_view_names(), [])
        metadata = sa.MetaData()
        metadata.reflect(self.engine)
        books = metadata.tables["books"]
        kinds = {column.name: str(column.type) for column in books.columns}
        self.assertEqual(
            kinds,
            {"id": "BIGINT", "title": "VARCHAR", "price": "NUMERIC(8, 2)", "printed": "TIMESTAMP", "author_id": "INTEGER"}
            | {"title": kinds["title"]},
        )
        self.assertEqual(str(metadata.tables["authors"].c.name.type), "VARCHAR(60)")
        self.assertIsNotNone(books.c.id.identity)
        self.assertEqual([key.target_fullname for key in books.foreign_keys], ["authors.id"])


class Asyncpg(WithPostgres, unittest.IsolatedAsyncioTestCase):
    async def connect(self):
        return await asyncpg.connect(
            host=self.host, port=self.port, user="ann", database="ropewalk", timeout=20,
            server_settings={"application_name": "shop"},
        )

    async def test_values_cursors_and_copies(self):
        db = await self.connect()
        await db.execute("CREATE TABLE things (id bigint PRIMARY KEY, name text, at timestamptz, cost numeric, tags text[])")
        at = datetime.datetime(2024, 2, 29, tzinfo=datetime.timezone.utc)
        rows = [(n, f"n{n}", at, decimal.Decimal(n) / 4, ["a", None, str(n)]) for n in range(500)]
        await db.executemany("INSERT INTO things VALUES ($1, $2, $3, $4, $5)", rows)
        row = await db.fetchrow("SELECT * FROM things WHERE id = $1", 7)
        self.assertEqual(tuple(row), rows[7])
        self.assertEqual(await db.fetchval("SELECT count(*) FROM things WHERE id = ANY($1::bigint[])", [1, 2, 900]), 2)
        async with db.transaction():
            seen = [record["id"] async for record in db.cursor("SELECT id FROM things ORDER BY id", prefetch=40)]
        self.assertEqual(seen, list(range(500)))
        statement = await db.prepare("SELECT name FROM things WHERE id = $1")
        self.assertEqual([a.name for a in statement.get_attributes()], ["name"])
        self.assertEqual([await statement.fetchval(n) for n in range(5)], [f"n{n}" for n in range(5)])
        await db.close()

    async def test_transactions_and_errors(self):
        db = await self.connect()
        await db.execute("CREATE TABLE counted (id int PRIMARY KEY, n int NOT NULL)")
        with self.assertRaises(ZeroDivisionError):
            async with db.transaction(isolation="serializable"):
                await db.execute("INSERT INTO counted VALUES (1, 1)")
                raise ZeroDivisionError
        async with db.transaction():
            await db.execute("INSERT INTO counted VALUES (2, 1)")
            with self.assertRaises(asyncpg.UniqueViolationError):
                async with db.transaction():
                    await db.execute("INSERT INTO counted VALUES (2, 1)")
        self.assertEqual(await db.fetch("SELECT id FROM counted"), [(2,)])
        with self.assertRaises(asyncpg.NotNullViolationError):
            await db.execute("INSERT INTO counted VALUES (3, NULL)")
        with self.assertRaises(asyncpg.UndefinedTableError):
            await db.fetch("SELECT * FROM nowhere")
        await db.close()

    async def test_pool(self):
        pool = await asyncpg.create_pool(
            host=self.host, port=self.port, user="ann", database="ropewalk", min_size=2, max_size=4
        )
        await pool.execute("CREATE TABLE pooled (id int PRIMARY KEY)")
        await asyncio.gather(*(pool.execute("INSERT INTO pooled VALUES ($1)", n) for n in range(40)))
        self.assertEqual(await pool.fetchval("SELECT count(*) FROM pooled"), 40)
        kinds = await pool.fetch("SELECT typname FROM pg_catalog.pg_type WHERE oid = ANY($1::oid[]) ORDER BY 1", [20, 25])
        self.assertEqual([kind["typname"] for kind in kinds], ["int8", "text"])
        await pool.close()


if __name__ == "__main__":
    unittest.main()
