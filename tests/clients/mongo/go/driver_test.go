// MongoDB's Go driver as it is published, with its defaults, against `ropewalk serve --mongo-listen`.
// Run by `go test` with MONGO_URL in the environment.
package driver

import (
	"context"
	"errors"
	"os"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

func open(t *testing.T, more ...*options.ClientOptions) *mongo.Database {
	t.Helper()
	all := append([]*options.ClientOptions{options.Client().ApplyURI(os.Getenv("MONGO_URL"))}, more...)
	client, err := mongo.Connect(all...)
	check(t, err)
	t.Cleanup(func() { check(t, client.Disconnect(context.Background())) })
	return client.Database("go_" + t.Name())
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func count(t *testing.T, c *mongo.Collection) int64 {
	t.Helper()
	n, err := c.CountDocuments(context.Background(), bson.D{})
	check(t, err)
	return n
}

func TestDocuments(t *testing.T) {
	ctx, c := context.Background(), open(t, options.Client().SetCompressors([]string{"zstd"})).Collection("things")
	var many []any
	for n := range 300 {
		many = append(many, bson.D{{Key: "_id", Value: n}, {Key: "tens", Value: n / 10}})
	}
	_, err := c.InsertMany(ctx, many)
	check(t, err)
	cursor, err := c.Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$gte", Value: 100}}}}, options.Find().SetBatchSize(30))
	check(t, err)
	var found []bson.M
	check(t, cursor.All(ctx, &found))
	if len(found) != 200 {
		t.Fatal(len(found))
	}
	updated, err := c.UpdateMany(ctx, bson.D{{Key: "tens", Value: 3}}, bson.D{{Key: "$set", Value: bson.D{{Key: "x", Value: true}}}})
	check(t, err)
	if updated.ModifiedCount != 10 {
		t.Fatal(updated)
	}
	_, err = c.InsertOne(ctx, bson.D{{Key: "_id", Value: 1}})
	if !mongo.IsDuplicateKeyError(err) {
		t.Fatal(err)
	}
	_, err = c.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: bson.D{{Key: "tens", Value: 1}}})
	check(t, err)
	deleted, err := c.DeleteMany(ctx, bson.D{{Key: "tens", Value: bson.D{{Key: "$gte", Value: 10}}}})
	check(t, err)
	if deleted.DeletedCount != 200 || count(t, c) != 100 {
		t.Fatal(deleted)
	}
}

func TestTransactions(t *testing.T) {
	ctx, db := context.Background(), open(t)
	c := db.Collection("things")
	session, err := db.Client().StartSession()
	check(t, err)
	defer session.EndSession(ctx)
	_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
		if _, err := c.InsertOne(ctx, bson.D{{Key: "_id", Value: 1}}); err != nil {
			return nil, err
		}
		return db.Collection("others").InsertOne(ctx, bson.D{{Key: "_id", Value: 2}})
	})
	check(t, err)
	no := errors.New("no")
	_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
		_, err := c.InsertOne(ctx, bson.D{{Key: "_id", Value: 3}})
		check(t, err)
		return nil, no
	})
	if !errors.Is(err, no) || count(t, c) != 1 {
		t.Fatal(err)
	}
}

func TestChangeStreams(t *testing.T) {
	ctx, c := context.Background(), open(t).Collection("things")
	stream, err := c.Watch(ctx, mongo.Pipeline{}, options.ChangeStream().SetFullDocument(options.UpdateLookup))
	check(t, err)
	defer stream.Close(ctx)
	_, err = c.InsertOne(ctx, bson.D{{Key: "_id", Value: 1}})
	check(t, err)
	_, err = c.DeleteOne(ctx, bson.D{{Key: "_id", Value: 1}})
	check(t, err)
	for _, kind := range []string{"insert", "delete"} {
		if !stream.Next(ctx) {
			t.Fatal(stream.Err())
		}
		if found := stream.Current.Lookup("operationType").StringValue(); found != kind {
			t.Fatal(found)
		}
	}
}
