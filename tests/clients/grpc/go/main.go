// Command client uses dunlin.v1 through grpc-go and its generated code. Usage: client ADDRESS
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	v1 "dunlin.example/client/gen/dunlin/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

func must[T any](value T, err error) T {
	if err != nil {
		log.Output(2, err.Error())
		os.Exit(1)
	}
	return value
}

func check(holds bool, what any) {
	if !holds {
		log.Output(2, fmt.Sprint(what))
		os.Exit(1)
	}
}

func main() {
	log.SetFlags(log.Lshortfile)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn := must(grpc.NewClient(os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials())))
	defer conn.Close()
	client := v1.NewDunlinClient(conn)
	records(ctx, client)
	publishStream(ctx, client)
	refusals(ctx, client)
	work(ctx, client)
	keys(ctx, v1.NewKvClient(conn))
}

func records(ctx context.Context, client v1.DunlinClient) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream := must(client.Subscribe(ctx, &v1.SubscribeRequest{Subjects: []string{"go.>"}}))
	check(must(stream.Recv()).GetSubscribed() != nil, "it begins with where it stands")
	draft := &v1.Draft{Payload: []byte("hello"), Key: []byte("k")}
	receipt := must(client.Publish(ctx, &v1.PublishRequest{Subject: "go.orders.1", Record: draft})).Receipt
	check(receipt.Seq == 1 && receipt.Level == v1.Level_LEVEL_MEMORY, receipt)
	event := must(stream.Recv())
	record := event.GetRecords().GetRecords()[0]
	check(event.GetRecords().Subject == "go.orders.1" && string(record.Payload) == "hello", event)
	check(string(record.Key) == "k" && record.AppendTimeNs > 0, event)
	fmt.Println("records: published and delivered")
}

func publishStream(ctx context.Context, client v1.DunlinClient) {
	stream := must(client.PublishStream(ctx))
	go func() {
		for number := range 100 {
			subject := ""
			if number == 0 {
				subject = "go-stream"
			}
			draft := &v1.Draft{Payload: []byte{byte(number)}}
			message := &v1.PublishStreamRequest{Subject: subject, Records: []*v1.Draft{draft, draft}}
			if stream.Send(message) != nil {
				return // The receiving direction of the stream reports the error.
			}
		}
		stream.CloseSend()
	}()
	through := uint64(0)
	for {
		answer, err := stream.Recv()
		if err == io.EOF {
			break
		}
		must(answer, err)
		check(answer.Through > through && len(answer.Refused) == 0, answer)
		through = answer.Through
	}
	check(through == 200, through)

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	start := &v1.Start{At: &v1.Start_Earliest{Earliest: true}}
	reading := must(client.Subscribe(ctx, &v1.SubscribeRequest{Subjects: []string{"go-stream"}, Start: start}))
	seq := uint64(0)
	for seq < 200 {
		for _, record := range must(reading.Recv()).GetRecords().GetRecords() {
			check(record.Seq == seq+1 && record.Payload[0] == byte(seq/2), record)
			seq = record.Seq
		}
	}
	fmt.Println("publish stream: acknowledged cumulatively, read in order")
}

func refusals(ctx context.Context, client v1.DunlinClient) {
	_, err := client.DescribeTopic(ctx, &v1.DescribeTopicRequest{Name: "nobody"})
	refused := status.Convert(err)
	check(refused.Code() == codes.NotFound, err)
	info := refused.Details()[0].(*errdetails.ErrorInfo)
	check(info.Reason == "NO_TOPIC" && info.Domain == "dunlin", info)
	fmt.Println("errors: a status, and the table's row in its details")
}

func work(ctx context.Context, client v1.DunlinClient) {
	member := must(client.JoinGroup(ctx))
	ask := func(request *v1.JoinGroupRequest) { must(0, member.Send(request)) }
	ask(&v1.JoinGroupRequest{Request: &v1.JoinGroupRequest_Join{Join: &v1.Join{
		Topic: "go-stream", Group: "crew", Kind: v1.GroupKind_GROUP_KIND_WORK,
		Start: &v1.Start{At: &v1.Start_Earliest{Earliest: true}},
	}}})
	check(must(member.Recv()).GetJoined() != nil, "it begins with its join")
	ask(&v1.JoinGroupRequest{Request: &v1.JoinGroupRequest_Claim{Claim: &v1.Claim{Wanted: 1}}})
	delivery := must(member.Recv()).GetDeliveries().GetDeliveries()[0]
	check(delivery.Record.Seq == 1 && delivery.Attempt == 1, delivery)
	ack := &v1.Ack{Request: 7, Tokens: []uint64{delivery.Token}}
	ask(&v1.JoinGroupRequest{Request: &v1.JoinGroupRequest_Ack{Ack: ack}})
	settled := must(member.Recv()).GetSettled()
	check(settled.GetRequest() == 7 && settled.GetSettled() == 1, settled)
	must(0, member.CloseSend())
	_, err := member.Recv()
	check(err == io.EOF, err)
	fmt.Println("work: claimed and acknowledged")
}

func keys(ctx context.Context, client v1.KvClient) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watch := must(client.Watch(ctx, &v1.WatchRequest{Key: []byte("go/"), RangeEnd: []byte("go0")}))
	check(len(must(watch.Recv()).Events) == 0, "it begins with where it stands")
	revision := must(client.Put(ctx, &v1.PutRequest{Key: []byte("go/a"), Value: []byte("1")})).Revision
	change := must(watch.Recv())
	check(change.Revision == revision && string(change.Events[0].Kv.Value) == "1", change)
	found := must(client.Range(ctx, &v1.RangeRequest{Key: []byte("go/a")}))
	check(len(found.Kvs) == 1 && found.Kvs[0].ModRevision == revision, found)
	expect := revision + 1_000_000
	_, err := client.Put(ctx, &v1.PutRequest{Key: []byte("go/a"), ExpectModRevision: &expect})
	refused := status.Convert(err)
	check(refused.Code() == codes.Aborted, err)
	check(refused.Details()[0].(*errdetails.ErrorInfo).Reason == "KEY_MOVED", err)
	lease := must(client.LeaseGrant(ctx, &v1.LeaseGrantRequest{TtlMs: 60_000})).Lease
	token := must(client.Lock(ctx, &v1.LockRequest{Name: []byte("go"), Lease: lease})).Token
	leader := must(client.Leader(ctx, &v1.LeaderRequest{Name: []byte("go")})).Kv
	check(token > 0 && leader.CreateRevision == token && leader.Lease == lease, leader)
	must(client.LeaseRevoke(ctx, &v1.LeaseRevokeRequest{Lease: lease}))
	check(must(client.Leader(ctx, &v1.LeaderRequest{Name: []byte("go")})).Kv == nil, "it went with its lease")
	fmt.Println("keys: put, got, watched, locked")
}
