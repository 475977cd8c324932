"""Django 5.2 as it comes from its project, with its PostgreSQL backend, against `ropewalk serve --postgres-listen`: migrations, objects,
transactions, changes of tables, and the pages of its administration."""

import datetime
import decimal
import io
import sys
import unittest
import uuid
from pathlib import Path

import django
from django.apps import AppConfig
from django.conf import settings

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from servers import Server, binary  # noqa: E402


class Library(AppConfig):
    """The application of this file."""

    name, label, path = __name__, "library", str(Path(__file__).parent)


settings.configure(
    SECRET_KEY="not secret",
    ALLOWED_HOSTS=["testserver"],
    ROOT_URLCONF=__name__,
    USE_TZ=True,
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
    INSTALLED_APPS=[
        "django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions",
        "django.contrib.messages", f"{__name__}.Library",
    ],
    MIDDLEWARE=[
        "django.contrib.sessions.middleware.SessionMiddleware", "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ],
    TEMPLATES=[{
        "BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True,
        "OPTIONS": {"context_processors": [
            "django.template.context_processors.request", "django.contrib.auth.context_processors.auth",
            "django.contrib.messages.context_processors.messages",
        ]},
    }],
    DATABASES={"default": {
        "ENGINE": "django.db.backends.postgresql", "NAME": "ropewalk", "USER": "ann",
        "OPTIONS": {"options": "-c default_transaction_isolation=read\\ committed"},
    }},
)
django.setup()

from django.contrib import admin  # noqa: E402
from django.contrib.auth.models import Permission, User  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import IntegrityError, OperationalError, connection, models, transaction  # noqa: E402
from django.db.models import Avg, Count, Exists, F, OuterRef, Q, Sum, Value, Window  # noqa: E402
from django.db.models.functions import Concat, Rank, TruncMonth, Upper  # noqa: E402
from django.test import Client  # noqa: E402
from django.urls import path  # noqa: E402


class Author(models.Model):
    name = models.CharField(max_length=60, unique=True)
    born = models.DateField(null=True)

    class Meta:
        app_label = "library"

    def __str__(self):
        return self.name


class Book(models.Model):
    key = models.UUIDField(default=uuid.uuid4, unique=True)
    title = models.CharField(max_length=200, db_index=True)
    price = models.DecimalField(max_digits=8, decimal_places=2, default=0)
    printed = models.DateTimeField(null=True, blank=True)
    lent = models.DurationField(null=True, blank=True)
    seen_from = models.GenericIPAddressField(null=True, blank=True)
    notes = models.JSONField(default=dict, blank=True)
    cover = models.BinaryField(default=b"")
    upper = models.GeneratedField(expression=Upper("title"), output_field=models.TextField(), db_persist=True)
    author = models.ForeignKey(Author, models.CASCADE)
    readers = models.ManyToManyField(User)

    class Meta:
        app_label = "library"
        constraints = [
            models.CheckConstraint(condition=Q(price__gte=0), name="book_price"),
            models.UniqueConstraint(fields=["author", "title"], name="book_of_author"),
            models.UniqueConstraint(fields=["title"], condition=Q(price=0), name="one_free_book"),
        ]
        indexes = [models.Index(Upper("title"), name="book_upper")]


admin.site.register(Author)
urlpatterns = [path("admin/", admin.site.urls)]


def migrate(*args):
    said = io.StringIO()
    call_command("migrate", *args, stdout=said, verbosity=1)
    return said.getvalue()


class Django(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(binary(), options=["--postgres-listen", "127.0.0.1:0"])
        host, _, port = cls.server.postgres.rpartition(":")
        connection.settings_dict.update(HOST=host, PORT=port)
        cls.migrated = migrate()
        with connection.schema_editor() as editor:
            editor.create_model(Author)
            editor.create_model(Book)

    @classmethod
    def tearDownClass(cls):
        connection.close()
        assert cls.server.stop()

    def setUp(self):
        Book.objects.all().delete()
        Author.objects.all().delete()
        self.ann = Author.objects.create(name="Ann", born=datetime.date(1970, 1, 2))
        self.bob = Author.objects.create(name="Bob")

    def test_migrations_of_django_itself(self):
        self.assertIn("Applying auth.0012_alter_user_first_name_max_length... OK", self.migrated)
        self.assertIn("No migrations to apply", migrate())
        self.assertEqual(Permission.objects.filter(content_type__app_label="auth").count(), 12)
        self.assertIn("Unapplying sessions.0001_initial... OK", migrate("sessions", "zero"))
        self.assertNotIn("django_session", connection.introspection.table_names())
        self.assertIn("Applying sessions.0001_initial... OK", migrate("sessions"))

    def test_objects_there_and_back(self):
        printed = datetime.datetime(2024, 2, 29, 12, 30, 0, 123456, tzinfo=datetime.timezone.utc)
        written = Book.objects.create(
            title="Élan", price=decimal.Decimal("1.50"), printed=printed, lent=datetime.timedelta(days=3, seconds=7, microseconds=1),
            seen_from="2001:db8::1", notes={"pages": [1, 2], "kind": {"of": "novel"}}, cover=b"\x00\xff", author=self.ann,
        )
        read = Book.objects.select_related("author").get(pk=written.pk)
        for field in ("key", "title", "price", "printed", "lent", "seen_from", "notes", "author"):
            self.assertEqual(getattr(read, field), getattr(written, field), field)
        self.assertEqual((bytes(read.cover), read.upper), (b"\x00\xff", "ÉLAN"))
        Book.objects.filter(pk=read.pk).update(price=F("price") * 2, title=Concat(F("title"), Value(" 2")))
        read.refresh_from_db()
        self.assertEqual((read.price, read.title, read.upper), (decimal.Decimal("3.00"), "Élan 2", "ÉLAN 2"))
        for condition in (
            {"notes__kind__of": "novel"}, {"notes__has_key": "pages"}, {"notes__pages__1": 2}, {"seen_from__startswith": "2001"},
            {"title__startswith": "Éla"}, {"title__icontains": "éLA"}, {"title__regex": "^É.*2$"}, {"printed__year": 2024},
            {"printed__date": printed.date()}, {"author__name__in": ["Ann", "Zoe"]}, {"lent__gt": datetime.timedelta(days=3)},
        ):
            self.assertEqual(Book.objects.filter(**condition).count(), 1, condition)
            self.assertEqual(Book.objects.exclude(**condition).count(), 0, condition)

    def test_queries(self):
        months = [datetime.datetime(2024, month, 5, tzinfo=datetime.timezone.utc) for month in (1, 1, 2, 3)]
        Book.objects.bulk_create(
            Book(title=f"Book {n}", price=n, printed=month, author=[self.ann, self.bob][n % 2]) for n, month in enumerate(months)
        )
        totals = Author.objects.annotate(books=Count("book"), worth=Sum("book__price")).order_by("name")
        self.assertEqual([(a.name, a.books, a.worth) for a in totals], [("Ann", 2, 2), ("Bob", 2, 4)])
        self.assertEqual(Book.objects.aggregate(mean=Avg("price"), dear=Count("pk", filter=Q(price__gte=2))), {"mean": 1.5, "dear": 2})
        by_month = Book.objects.values(month=TruncMonth("printed")).annotate(n=Count("pk")).order_by("month").values_list("n", flat=True)
        self.assertEqual(list(by_month), [2, 1, 1])
        ranked = Book.objects.annotate(place=Window(Rank(), partition_by="author", order_by=F("price").desc())).order_by("pk")
        self.assertEqual([book.place for book in ranked], [2, 2, 1, 1])
        dear = Author.objects.filter(Exists(Book.objects.filter(author=OuterRef("pk"), price__gt=2)))
        self.assertEqual([author.name for author in dear], ["Bob"])
        self.assertEqual(Author.objects.filter(book__price=0).union(Author.objects.filter(name="Bob")).count(), 2)
        prefetched = {author.name: len(author.book_set.all()) for author in Author.objects.prefetch_related("book_set")}
        self.assertEqual(prefetched, {"Ann": 2, "Bob": 2})
        self.assertEqual(Book.objects.distinct("author").order_by("author", "-price").first().title, "Book 2")
        self.assertIn("by index library_book_title", Book.objects.filter(title="Book 1").explain())
        Book.objects.bulk_create(
            [Book(title="Book 0", price=9, author=self.ann)], update_conflicts=True, unique_fields=["author", "title"],
            update_fields=["price"],
        )
        self.assertEqual(Book.objects.get(title="Book 0").price, 9)

    def test_related_objects(self):
        reader = User.objects.create_user("reader", password="read")
        book = Book.objects.create(title="One", author=self.ann)
        book.readers.add(reader)
        self.assertEqual(list(reader.book_set.values_list("title", flat=True)), ["One"])
        self.ann.delete()
        self.assertEqual((Book.objects.count(), Book.readers.through.objects.count()), (0, 0))
        reader.delete()

    def test_constraints_and_transactions(self):
        free = {"title": "Free", "author": self.ann}
        Book.objects.create(**free)
        for wrong in (free, {"title": "Cheap", "author": self.ann, "price": -1}, {"title": "Free", "author": self.bob}):
            with self.assertRaises(IntegrityError), transaction.atomic():
                Book.objects.create(**wrong)
        # A foreign key is checked when the transaction commits.
        with transaction.atomic():
            Book.objects.create(title="Early", author_id=self.bob.pk + 1)
            Author.objects.create(pk=self.bob.pk + 1, name="Late")
        with self.assertRaises(IntegrityError):
            with transaction.atomic():
                Book.objects.create(title="Lost", author_id=self.bob.pk + 2)
                self.assertEqual(Book.objects.filter(title="Lost").count(), 1)
        self.assertEqual(Book.objects.filter(title="Lost").count(), 0)
        with transaction.atomic(), self.assertRaises(IntegrityError):
            Book.objects.create(title="Lost", author_id=self.bob.pk + 2)
            connection.check_constraints()

    def test_locks(self):
        with transaction.atomic():
            self.assertEqual(Author.objects.select_for_update(of=("self",)).get(name="Ann"), self.ann)
            other = connection.copy()
            with other.cursor() as cursor:
                for end in ("NOWAIT", "SKIP LOCKED"):
                    cursor.execute("BEGIN")
                    ask = f"SELECT name FROM library_author ORDER BY name FOR UPDATE {end}"
                    if end == "NOWAIT":
                        self.assertRaises(OperationalError, cursor.execute, ask)
                    else:
                        cursor.execute(ask)
                        self.assertEqual(cursor.fetchall(), [("Bob",)])
                    cursor.execute("ROLLBACK")
            other.close()

    def test_changes_of_tables(self):
        class Shelf(models.Model):
            label = models.CharField(max_length=10)

            class Meta:
                app_label = "library"

        with connection.schema_editor() as editor:
            editor.create_model(Shelf)
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO library_shelf (label) VALUES ('12')")

        def change(old, name, new):
            if isinstance(old, str):
                old = Shelf._meta.get_field(old)
            new.set_attributes_from_name(name)
            new.model = Shelf
            with connection.schema_editor() as editor:
                editor.alter_field(Shelf, old, new, strict=True) if old else editor.add_field(Shelf, new)
            return new

        def column(name):
            with connection.cursor() as cursor:
                described = {c.name: c for c in connection.introspection.get_table_description(cursor, "library_shelf")}
                return connection.introspection.get_field_type(described[name].type_code, described[name]), described[name].null_ok

        number = change("label", "label", models.IntegerField())
        self.assertEqual(column("label"), ("IntegerField", False))
        number = change(number, "number", models.BigIntegerField(null=True, unique=True))
        self.assertEqual(column("number"), ("BigIntegerField", True))
        number = change(number, "number", models.CharField(max_length=30))
        number = change(number, "number", models.CharField(max_length=30, db_index=True))
        # Columns of results are text, whatever the limit of the table's column.
        self.assertEqual(column("number"), ("TextField", False))
        owner = change(None, "owner", models.ForeignKey(Author, models.CASCADE, null=True))
        with connection.cursor() as cursor:
            found = connection.introspection.get_constraints(cursor, "library_shelf").values()
            self.assertEqual(connection.introspection.get_relations(cursor, "library_shelf"), {"owner_id": ("id", "library_author")})
        # Of `number` an index for equality and one of `varchar_pattern_ops` that LIKE uses, the primary key, the foreign key and its index.
        self.assertEqual(len(found), 5)
        with connection.schema_editor() as editor:
            editor.remove_field(Shelf, owner)
            editor.alter_db_table(Shelf, "library_shelf", "library_rack")
        with connection.cursor() as cursor:
            cursor.execute("SELECT id, number FROM library_rack")
            self.assertEqual(cursor.fetchall(), [(1, "12")])
            cursor.execute("DROP TABLE library_rack")

    def test_tables_as_models(self):
        said = io.StringIO()
        call_command("inspectdb", "library_book", stdout=said)
        for line in (
            "key = models.UUIDField(unique=True)", "price = models.DecimalField(max_digits=8, decimal_places=2)",
            "seen_from = models.GenericIPAddressField(blank=True, null=True)", "notes = models.JSONField()",
            "author = models.ForeignKey('LibraryAuthor', models.DO_NOTHING)", "unique_together = (('author', 'title'),)",
        ):
            self.assertIn(line, said.getvalue())

    def test_administration(self):
        User.objects.create_superuser("root", password="secret")
        client = Client()
        self.assertTrue(client.login(username="root", password="secret"))
        page = client.get("/admin/library/author/")
        self.assertIn("2 authors", page.content.decode())
        added = client.post("/admin/library/author/add/", {"name": "Cid", "born": "1980-03-04"})
        self.assertEqual((added.status_code, Author.objects.get(name="Cid").born), (302, datetime.date(1980, 3, 4)))
        again = client.post("/admin/library/author/add/", {"name": "Cid", "born": ""})
        self.assertIn("Author with this Name already exists", again.content.decode())
        self.assertIn("Cid", client.get("/admin/").content.decode())
        User.objects.all().delete()


if __name__ == "__main__":
    unittest.main()
