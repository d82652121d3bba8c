"""Tests of groups, and of requests and replies."""

from __future__ import annotations

import threading

import dunlin
import pytest
from conftest import PATIENCE, next_record
from dunlin import errors


def next_job(member: dunlin.Member) -> dunlin.Job:
    job = member.next(PATIENCE)
    assert isinstance(job, dunlin.Job), job
    return job


def test_each_record_of_a_share_group_goes_to_one_member(client: dunlin.Client, topic: str) -> None:
    for number in range(100):
        client.send(topic, str(number))
    client.flush()
    seen: list[bytes] = []
    lock = threading.Lock()

    def read(member: dunlin.Member) -> None:
        for job in member:
            assert isinstance(job, dunlin.Job)
            with lock:
                seen.append(job.payload)
                if len(seen) == 100:
                    for one in members:
                        one.close()

    members = [client.share(topic, "g", start="earliest") for _ in range(2)]
    threads = [threading.Thread(target=read, args=(member,)) for member in members]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(map(int, seen)) == list(range(100))


def test_nacked_job_is_redelivered_with_the_next_attempt_number(client: dunlin.Client, topic: str) -> None:
    client.publish(topic, b"job", key="k", headers={"h": "v"})
    with client.work(topic, "crew") as member:
        job = next_job(member)
        assert (job.subject, job.payload, job.key, job.headers) == (topic, b"job", b"k", (("h", b"v"),))
        assert job.attempt == 1 and 0 < job.claim <= 30
        assert job.record.position == job.position
        with pytest.raises(ValueError, match="delay=4294967.5 is not from 0 to 4294967 seconds"):
            job.nack(4_294_967.5)
        job.nack()
        again = next_job(member)
        assert (again.position, again.attempt) == (job.position, 2)
        again.renew()
        again.ack()
        with pytest.raises(errors.StaleClaimError, match="the claim has ended: acknowledged, returned"):
            again.ack()
        client.publish(topic, b"next")
        assert next_job(member).payload == b"next"


def test_record_becomes_a_dead_letter_after_its_last_attempt(client: dunlin.Client, topic: str) -> None:
    client.publish(topic, b"poison")
    dead = client.subscribe(f"dead.{topic}", start="earliest")
    with client.work(topic, "crew", attempts_max=2) as member:
        for attempt in (1, 2):
            job = next_job(member)
            assert job.attempt == attempt
            job.nack()
        letter = next_record(dead)
    assert (letter.payload, letter.header("dunlin-dead-cause")) == (b"poison", b"nack")


def test_dead_letters_go_to_the_chosen_subject_or_are_dropped(client: dunlin.Client, topic: str) -> None:
    client.publish(topic, b"poison")
    graves = client.subscribe(f"graves.{topic}", start="earliest")
    with client.work(topic, "drops", attempts_max=1, drop_dead_letters=True) as member:
        next_job(member).nack()
    with client.work(topic, "buries", attempts_max=1, dead_letter=f"graves.{topic}") as member:
        next_job(member).nack()
        assert next_record(graves).header("dunlin-dead-group") == b"buries"
    with pytest.raises(errors.NoTopicError):
        client.describe(f"dead.{topic}")


def test_threads_acknowledge_jobs_while_another_thread_waits(client: dunlin.Client, topic: str) -> None:
    for number in range(20):
        client.publish(topic, str(number))
    workers = []
    done: list[int] = []

    def work(job: dunlin.Job) -> None:
        job.ack()
        done.append(int(job.payload))

    with client.work(topic, "crew", prefetch=4) as member:
        for _ in range(20):
            worker = threading.Thread(target=work, args=(next_job(member),))
            worker.start()
            workers.append(worker)
        for worker in workers:
            worker.join(PATIENCE)
    assert sorted(done) == list(range(20))
    (group,) = client.describe(topic).groups
    assert (group.name, group.kind, group.waiting, group.claimed) == ("crew", "work", 0, 0)
    assert (group.pending_dead_letters, group.dead_letter_error) == (0, None)


def test_one_ack_settles_many_jobs_exactly_once(client: dunlin.Client, topic: str) -> None:
    for number in range(8):
        client.publish(topic, str(number))
    with client.work(topic, "crew", prefetch=8) as member:
        jobs = [next_job(member) for _ in range(8)]
        member.ack(jobs)
        with pytest.raises(errors.StaleClaimError, match="8 claims have ended"):
            member.ack(jobs)


def test_requester_receives_reply_payload_and_headers(client: dunlin.Client, url: str, topic: str) -> None:
    requests = client.subscribe(topic)

    def answer() -> None:
        for _ in range(3):
            request = next_record(requests)
            client.reply(request, request.payload.upper(), headers={"by": "me"})

    answering = threading.Thread(target=answer)
    answering.start()
    with dunlin.connect(url) as other:
        for text in ("one", "two", "three"):
            reply = other.request(topic, text, timeout=PATIENCE)
            assert reply == (text.upper().encode(), (("by", b"me"),))
    answering.join()


def test_unanswered_request_times_out(client: dunlin.Client, topic: str) -> None:
    with client.subscribe(topic), pytest.raises(TimeoutError) as caught:
        client.request(topic, b"?", timeout=0.05)
    assert isinstance(caught.value, dunlin.RequestTimeoutError)


def test_request_without_subscriber_raises_a_no_responder_error(client: dunlin.Client, topic: str) -> None:
    with pytest.raises(errors.NoResponderError):
        client.request(topic, b"?", timeout=PATIENCE)


def test_client_replies_only_to_inboxes_and_allowed_subjects(client: dunlin.Client, topic: str) -> None:
    subscription = client.subscribe(topic)
    with pytest.raises(errors.ForbiddenError, match="is not an inbox"):
        client.reply(topic, b"refused")
    with pytest.raises(ValueError, match="within: "):
        client.reply(topic, b"refused", within="")
    client.reply(topic, b"allowed", within=topic)
    assert next_record(subscription).payload == b"allowed"


def test_reply_to_a_record_without_reply_subject_is_an_error(client: dunlin.Client, topic: str) -> None:
    client.publish(topic, b"")
    record = next_record(client.subscribe(topic, start="earliest"))
    with pytest.raises(ValueError, match="has no reply subject"):
        client.reply(record)
