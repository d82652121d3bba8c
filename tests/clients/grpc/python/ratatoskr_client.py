"""Makes the nine calls of ratatoskr.MessageBroker with code that grpcio generated. Usage: ratatoskr_client.py ADDRESS
"""

import sys

import grpc
from ratatoskr import ratatoskr_pb2 as rata
from ratatoskr import ratatoskr_pb2_grpc

PATIENCE_S = 60


def main():
    with grpc.insecure_channel(sys.argv[1]) as channel:
        stub = ratatoskr_pb2_grpc.MessageBrokerStub(channel)
        call = lambda method, request: method(request, timeout=PATIENCE_S)

        assert call(stub.CreateTopic, rata.CreateTopicRequest(name="news")).created
        again = call(stub.CreateTopic, rata.CreateTopicRequest(name="news"))
        assert (again.topic, again.created, again.error) == ("news", False, "already_exists")
        assert call(stub.CreateTopic, rata.CreateTopicRequest(name="no dots.")).error == "invalid_topic_format"
        assert "news" in call(stub.ListTopics, rata.ListTopicsRequest()).topics
        assert call(stub.TopicExists, rata.TopicExistsRequest(name="news")).exists
        print("topics: created, refused in band, listed")

        stream = call(stub.Subscribe, rata.SubscribeRequest(topic="news", subscriber_id="me"))
        reference = dict(stream.initial_metadata())["subscription-ref"]
        message = rata.PublishRequest(topic="news", payload=b"one", metadata={"trace": "7"})
        published = call(stub.Publish, message)
        assert published.success and published.timestamp > 0, published
        batch = rata.PublishBatchRequest(
            topic="news",
            messages=[rata.PublishRequest(payload=b"two"), rata.PublishRequest(topic="a b"), rata.PublishRequest(payload=b"three")],
        )
        batch = call(stub.PublishBatch, batch)
        assert (batch.success_count, batch.error_count) == (2, 1), batch
        got = [next(stream) for _ in range(3)]
        assert [one.payload for one in got] == [b"one", b"two", b"three"]
        assert (got[0].id, got[0].timestamp, got[0].metadata["trace"]) == (published.message_id, published.timestamp, "7")
        print("messages: published one by one and in a batch, and delivered")

        stats = call(stub.GetStats, rata.GetStatsRequest(topic="news"))
        assert (stats.message_count, stats.subscriber_count, stats.error) == (3, 1, ""), stats
        assert call(stub.GetStats, rata.GetStatsRequest(topic="none")).error == "topic_not_found"
        ended = call(stub.Unsubscribe, rata.UnsubscribeRequest(topic="news", subscription_ref=reference))
        assert ended.success, ended
        assert list(stream) == []
        wrong = call(stub.Unsubscribe, rata.UnsubscribeRequest(topic="news", subscription_ref="wrong"))
        assert wrong.error == "subscription_not_found"
        print("unsubscribe: ends the stream it names")

        assert call(stub.DeleteTopic, rata.DeleteTopicRequest(name="news")).success
        assert call(stub.DeleteTopic, rata.DeleteTopicRequest(name="news")).error == "topic_not_found"
        try:
            next(call(stub.Subscribe, rata.SubscribeRequest(topic="news", subscriber_id="me")))
            raise AssertionError("subscribed to nothing")
        except grpc.RpcError as error:
            assert (error.code(), error.details()) == (grpc.StatusCode.NOT_FOUND, "topic_not_found")
        print("delete: gone, and said so")


main()
