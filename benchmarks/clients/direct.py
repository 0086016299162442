"""Systems whose processes talk to each other directly, without a server."""

import asyncio
import ctypes
import json
import os
import threading
from dataclasses import dataclass
from typing import Any

from clients.base import PATIENCE_S, Client, Handler, Publish

MESSAGES_MAX = 1000  # at each end of a socket of pyzmq, which is its default
TAKE_MAX = 100  # samples that a reader of Cyclone DDS is asked for at once
SAMPLES_MAX = 1024  # that iceoryx2 holds for a subscriber
LOOK_AGAIN_MS = 100  # between checks whether its subscriber is closed
SAMPLE_BYTES = 128  # of the samples that iceoryx2 begins with; longer ones make it reserve more
QUIET_S = 0.5  # after this long without a new subscription, all are there


class Zenoh(Client):
    """eclipse-zenoh, which blocks instead of dropping."""

    library = "eclipse-zenoh"
    waits = False

    async def connect(self, mode: str, tls: dict[str, str] | None = None, **endpoints: str) -> dict[str, Any]:
        import zenoh

        settings: dict[str, Any] = {
            "mode": mode,
            "scouting/multicast/enabled": False,
            "scouting/gossip/enabled": False,
            **{f"{side}/endpoints": [endpoint] for side, endpoint in endpoints.items()},
        }
        if tls is not None:
            settings["transport/link/tls"] = {
                "root_ca_certificate": tls["authority"],
                "listen_certificate": tls["certificate"],
                "listen_private_key": tls["key"],
            }
        config = zenoh.Config()
        for name, value in settings.items():
            config.insert_json5(name, json.dumps(value))
        self.zenoh, self.session, self.kept = zenoh, zenoh.open(config), list[Any]()
        return {"version": self.version(), "congestion_control": "block", "mode": mode, "tls": tls is not None}

    async def subscribe(self, topic: str, handler: Handler) -> None:
        self.kept.append(self.session.declare_subscriber(topic, lambda sample: handler(sample.payload.to_bytes())))

    async def open(self, topic: str) -> Publish:
        publisher = self.session.declare_publisher(topic, congestion_control=self.zenoh.CongestionControl.BLOCK)
        self.kept.append(publisher)
        while not publisher.matching_status.matching:  # noqa: ASYNC110 - zenoh tells nobody
            await asyncio.sleep(0.01)
        put: Publish = publisher.put
        return put

    async def close(self) -> None:
        self.session.close()


class Cyclone(Client):
    """cyclonedds: writer and reader are reliable and keep all samples, so a full cache holds the writer back.

    A writer that has waited for too long fails; its limit is longer than any measurement here. The type of the payload
    is a sequence of octets, which the library's Python side converts into a list of integers and back.
    """

    library = "cyclonedds"
    waits = False

    async def connect(self, configuration: str) -> dict[str, Any]:
        os.environ["CYCLONEDDS_URI"] = configuration  # read when the first participant is created
        from cyclonedds.domain import DomainParticipant
        from cyclonedds.idl import IdlStruct
        from cyclonedds.idl.types import sequence, uint8

        @dataclass
        class Sample(IdlStruct, typename="Sample"):  # type: ignore[misc, call-arg]
            payload: sequence[uint8]

        self.qos, told = self._quality()
        self.sample, self.participant, self.kept = Sample, DomainParticipant(), list[Any]()
        return {"version": self.version(), **told}

    def _quality(self) -> tuple[Any, dict[str, str]]:
        from cyclonedds.qos import Policy, Qos
        from cyclonedds.util import duration

        qos = Qos(Policy.Reliability.Reliable(duration(seconds=PATIENCE_S)), Policy.History.KeepAll)
        return qos, {"reliability": "reliable", "history": "keep all"}

    async def subscribe(self, topic: str, handler: Handler) -> None:
        from cyclonedds.core import Listener
        from cyclonedds.sub import DataReader

        class Taking(Listener):  # type: ignore[misc]
            def on_data_available(self, reader: Any) -> None:
                for sample in reader.take(TAKE_MAX):
                    if sample.sample_info.valid_data:  # otherwise it reports that a writer has gone
                        handler(bytes(sample.payload))

        self.kept.append(DataReader(self.participant, self._topic(topic), qos=self.qos, listener=Taking()))

    async def open(self, topic: str) -> Publish:
        from cyclonedds.pub import DataWriter

        writer, sample = DataWriter(self.participant, self._topic(topic), qos=self.qos), self.sample
        while not writer.get_matched_subscriptions():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
        return lambda payload: writer.write(sample(payload))

    def _topic(self, name: str) -> Any:
        from cyclonedds.topic import Topic

        return Topic(self.participant, name.replace("/", "_"), self.sample)

    async def close(self) -> None:
        """Do nothing: it ends with the process."""


class CycloneBestEffort(Cyclone):
    """Cyclone DDS that sends each sample once and keeps the last one."""

    loses = True

    def _quality(self) -> tuple[Any, dict[str, str]]:
        from cyclonedds.qos import Policy, Qos

        return Qos(Policy.Reliability.BestEffort), {"reliability": "best effort", "history": "keep last 1"}


class Iceoryx(Client):
    """iceoryx2: samples in shared memory, and a notification for each. A full buffer holds the publisher back.

    A thread waits for notifications, and takes all available samples.
    """

    library = "iceoryx2"
    waits = False
    notifies = True

    async def connect(self, place: str) -> dict[str, Any]:
        import iceoryx2

        iceoryx2.set_log_level(iceoryx2.LogLevel.Error)
        self.iox, self.place, self.threads, self.closed = iceoryx2, place, list[threading.Thread](), False
        self.node = iceoryx2.NodeBuilder.new().create(iceoryx2.ServiceType.Ipc)
        return {
            "version": self.version(),
            "subscriber_buffer_samples": SAMPLES_MAX,
            "overflow": "the publisher waits",
            "subscriber": "waits for a notification of each sample" if self.notifies else "polls",
        }

    def _services(self, topic: str) -> tuple[Any, Any]:
        """The services of a topic: samples, and notifications."""
        name = self.iox.ServiceName.new(f"{self.place}/{topic}")
        samples = self.node.service_builder(name).publish_subscribe(self.iox.Slice[ctypes.c_uint8])
        bounded = samples.enable_safe_overflow(False).subscriber_max_buffer_size(SAMPLES_MAX)
        return bounded.open_or_create(), self.node.service_builder(name).event().open_or_create()

    async def subscribe(self, topic: str, handler: Handler) -> None:
        samples, notifications = self._services(topic)
        subscriber = samples.subscriber_builder().create()
        listener = notifications.listener_builder().create() if self.notifies else None
        self.threads.append(threading.Thread(target=self._receive, args=[subscriber, listener, handler]))
        self.threads[-1].start()

    def _receive(self, subscriber: Any, listener: Any, handler: Handler) -> None:
        receive, look_again = subscriber.receive, self.iox.Duration.from_millis(LOOK_AGAIN_MS)
        while not self.closed:
            if listener is not None:
                listener.timed_wait(look_again)
            while (sample := receive()) is not None:
                payload = bytes(sample.payload().as_memory_view())
                sample.delete()  # frees the memory at once
                handler(payload)

    async def open(self, topic: str) -> Publish:
        samples, notifications = self._services(topic)
        building = samples.publisher_builder().initial_max_slice_len(SAMPLE_BYTES)
        building = building.allocation_strategy(self.iox.AllocationStrategy.PowerOfTwo)
        publisher = building.backpressure_strategy(self.iox.BackpressureStrategy.RetryUntilDelivered).create()
        notifier = notifications.notifier_builder().create() if self.notifies else None
        while not samples.dynamic_config.number_of_subscribers:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)

        def publish(payload: bytes) -> None:
            sample = publisher.loan_slice_uninit(len(payload))
            ctypes.memmove(sample.payload_ptr, payload, len(payload))
            sample.assume_init().send()
            if notifier is not None:
                notifier.notify()

        return publish

    async def close(self) -> None:
        """Do nothing: shared resources end with their last user."""
        self.closed = True
        for thread in self.threads:
            await asyncio.to_thread(thread.join)


class IceoryxPolling(Iceoryx):
    """iceoryx2 without notifications: the subscriber's thread polls continuously, and takes a whole core."""

    notifies = False


class Zmq(Client):
    """pyzmq: XPUB and SUB over TCP, which hold the publisher back at the high-water mark instead of dropping.

    A payload is a message of one part, and a SUB receives all messages: topic names are not sent. XPUB works like PUB,
    and also reports new subscribers.
    """

    library = "pyzmq"
    waits = False

    async def connect(self, **endpoints: str) -> dict[str, Any]:
        import zmq

        self.zmq, self.context, self.endpoints = zmq, zmq.Context(), endpoints
        self.context.setsockopt(zmq.SNDHWM, MESSAGES_MAX)
        self.context.setsockopt(zmq.RCVHWM, MESSAGES_MAX)
        self.handlers = list[Handler]()
        if "subscribers" in endpoints:
            threading.Thread(target=self._forward, daemon=True).start()
        return {"version": self.version(), "high_water_mark": MESSAGES_MAX, "drop": False}

    def _forward(self) -> None:
        """Run as the process in the middle."""
        publishers, subscribers = self.context.socket(self.zmq.XSUB), self._xpub()
        publishers.bind(self.endpoints["publishers"])
        subscribers.bind(self.endpoints["subscribers"])
        self.zmq.proxy(publishers, subscribers)

    def _xpub(self) -> Any:
        socket = self.context.socket(self.zmq.XPUB)
        socket.setsockopt(self.zmq.XPUB_NODROP, 1)
        socket.setsockopt(self.zmq.XPUB_VERBOSE, 1)
        return socket

    def _attach(self, socket: Any, side: str) -> Any:
        """Bind or connect, as the options say."""
        if "bind" in self.endpoints:
            socket.bind(self.endpoints["bind"])
        else:
            socket.connect(self.endpoints.get("connect") or self.endpoints[side])
        return socket

    def _sub(self) -> Any:
        socket = self.context.socket(self.zmq.SUB)
        socket.setsockopt(self.zmq.SUBSCRIBE, b"")
        return self._attach(socket, "to_subscribe")

    async def subscribe(self, topic: str, handler: Handler) -> None:
        self.handlers.append(handler)
        if len(self.handlers) == 1:
            threading.Thread(target=self._receive, args=[self._sub()], daemon=True).start()

    def _receive(self, socket: Any) -> None:
        receive, handlers = socket.recv, self.handlers
        while True:
            payload = receive()
            for handler in handlers:
                handler(payload)

    async def open(self, topic: str) -> Publish:
        if not hasattr(self, "publisher"):
            self.publisher = self._attach(self._xpub(), "to_publish")
            await asyncio.to_thread(self._await_subscribers)
        send: Publish = self.publisher.send
        return send

    def _await_subscribers(self) -> None:
        self.publisher.recv()  # the first
        while self.publisher.poll(int(1000 * QUIET_S)):
            self.publisher.recv()

    async def close(self) -> None:
        """Do nothing: sockets end with the process, because a thread waits in some of them."""
