"""Stage factories for a run of SGLang-Omni without a model: real schedulers, mock compute.

The engine imports these inside its own stage processes (StageConfig.factory_path), exactly as it
imports a model's. Everything that moves a request (coordinator, stages, relay, schedulers, control
plane, recorder) is the engine's; a model's forward pass is replaced by Work.

Each activation is bracketed by two events of the engine's own recorder: under the names that the
model's own code uses where it has some, else mock_compute_start/mock_compute_end.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from pathlib import Path
from typing import Callable

import torch

from sglang_omni.profiler.event_recorder import emit
from sglang_omni.proto.request import StagePayload
from sglang_omni.scheduling.message import OutgoingMessage
from sglang_omni.scheduling.simple_scheduler import SimpleScheduler
from sglang_omni.scheduling.streaming_simple_scheduler import StreamingSimpleScheduler

DEFAULT_TOKENS = 4
MAX_TOKENS = 64
HIDDEN = 1024  # float32: 4 KiB a thinker chunk, small enough for the engine to send it inside the frame
CODEC = 8192  # float32: 32 KiB a codec chunk, over the engine's 16 KiB limit for that, so it goes through shm
IMAGE_BYTES, AUDIO_BYTES = 24_000, 12_000  # when the request brings no media
SAMPLE_RATE = 24_000
SAMPLES_PER_CHUNK = 2_400

# Mean milliseconds of one activation at scale 1.
MEAN_MS = {
    "preprocessing": 3.0,
    "image_encoder": 8.0,
    "audio_encoder": 6.0,
    "mm_aggregate": 1.0,
    "thinker": 5.0,
    "decode": 0.5,
    "talker_ar": 3.0,
    "code2wav": 4.0,
}
EVENTS = {
    "preprocessing": ("preprocess_start", "preprocess_end"),
    "image_encoder": ("encoder_start", "encoder_end"),
    "audio_encoder": ("encoder_start", "encoder_end"),
    "code2wav": ("code2wav_decode_start", "code2wav_decode_end"),
}
DEFAULT_EVENTS = ("mock_compute_start", "mock_compute_end")


def burn(rounds: int) -> int:
    """Pure Python arithmetic: holds the GIL and makes no system call."""
    x = 1
    for _ in range(rounds):
        x = (x * 1103515245 + 12345) & 0x7FFFFFFF
    return x


def rounds_per_ms() -> float:
    """Speed of burn on this machine; the fastest of a few tries, since others share the cores."""
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        burn(20_000)
        best = min(best, time.perf_counter() - began)
    return 20_000 / (best * 1000)


class Work:
    """Stands in for the forward pass of one stage; its length depends on request, stage and chunk only."""

    def __init__(self, stage: str, mode: str, scale: float) -> None:
        if mode not in ("sleep", "gil"):
            raise ValueError(f"unknown compute mode {mode!r}: use sleep or gil")
        self.stage = stage
        self.mode = mode
        self.scale = scale
        self.speed = rounds_per_ms() if mode == "gil" else 0.0
        self.events = EVENTS.get(stage, DEFAULT_EVENTS)

    def milliseconds(self, key: str) -> float:
        spread = zlib.crc32(f"{self.stage}/{key}".encode()) / 0xFFFFFFFF  # 0..1
        return MEAN_MS[self.stage] * self.scale * (0.5 + spread)

    def run(self, request_ids: list[str], chunk_id: int | None = None) -> None:
        """One activation for all of request_ids; a batch takes as long as its longest member."""
        metadata: dict[str, object] = {"batch_size": len(request_ids)}
        if chunk_id is not None:
            metadata["chunk_id"] = chunk_id
        for request_id in request_ids:
            emit(request_id=request_id, stage=self.stage, event_name=self.events[0], metadata=metadata)
        ms = max(self.milliseconds(f"{r}/{chunk_id}") for r in request_ids)
        if self.mode == "sleep":
            time.sleep(ms / 1000)
        else:
            burn(int(ms * self.speed))
        for request_id in request_ids:
            emit(request_id=request_id, stage=self.stage, event_name=self.events[1], metadata=metadata)


def announce(stage: str, pid_dir: str) -> None:
    """Tell the launcher which process became this stage."""
    path = Path(pid_dir, f"{stage}.json")
    partial = path.with_suffix(".part")
    partial.write_text(json.dumps({"name": stage, "pid": os.getpid()}))
    partial.rename(path)


def tokens_of(payload: StagePayload) -> int:
    wanted = payload.request.params.get("max_new_tokens") or DEFAULT_TOKENS
    return max(1, min(int(wanted), MAX_TOKENS))


def is_streaming(payload: StagePayload) -> bool:
    return bool(payload.request.params.get("stream"))


def as_bytes(text: str, minimum: int) -> torch.Tensor:
    """The text as a uint8 tensor, repeated to at least minimum bytes."""
    raw = text.encode() or b"\0"
    raw = raw * -(-minimum // len(raw)) if len(raw) < minimum else raw
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8)


def prompt_of(inputs: object) -> tuple[str, str, str]:
    """Prompt text, image and audio references of a chat request as the engine's client lays them out."""
    media = inputs if isinstance(inputs, dict) else {"messages": inputs}
    text = "".join(str(m.get("content", "")) for m in media.get("messages") or [] if isinstance(m, dict))
    return text, "".join(media.get("images") or []), "".join(media.get("audios") or [])


def simple(stage: str, compute: str, scale: float, pid_dir: str, transform: Callable[[StagePayload], dict[str, object]]) -> SimpleScheduler:
    """The engine's SimpleScheduler, batching as its encoders do."""
    work = Work(stage, compute, scale)

    def batch(payloads: list[StagePayload]) -> list[StagePayload]:
        work.run([p.request_id for p in payloads])
        return [StagePayload(request_id=p.request_id, request=p.request, data=transform(p)) for p in payloads]

    announce(stage, pid_dir)
    batched = stage.endswith("_encoder")
    return SimpleScheduler(
        lambda payload: batch([payload])[0],
        batch_compute_fn=batch if batched else None,
        max_batch_size=32 if batched else 1,
        batch_wait_when_idle=False,
    )


def create_preprocessing(compute: str, scale: float, pid_dir: str) -> SimpleScheduler:
    def tokenize(payload: StagePayload) -> dict[str, object]:
        text, image, audio = prompt_of(payload.request.inputs)
        # The inputs live on in the tensors: left in the request they would ride in the header of every frame.
        payload.request.inputs = None
        return {"prompt": as_bytes(text, 1), "image": as_bytes(image, IMAGE_BYTES), "audio": as_bytes(audio, AUDIO_BYTES)}

    return simple("preprocessing", compute, scale, pid_dir, tokenize)


def create_image_encoder(compute: str, scale: float, pid_dir: str) -> SimpleScheduler:
    return simple("image_encoder", compute, scale, pid_dir, lambda p: {"image_features": p.data["image"].float()})


def create_audio_encoder(compute: str, scale: float, pid_dir: str) -> SimpleScheduler:
    return simple("audio_encoder", compute, scale, pid_dir, lambda p: {"audio_features": p.data["audio"].float()})


def create_aggregate(compute: str, scale: float, pid_dir: str) -> SimpleScheduler:
    return simple("mm_aggregate", compute, scale, pid_dir, lambda p: dict(p.data))


def project_image(payload: StagePayload) -> StagePayload:
    return StagePayload(request_id=payload.request_id, request=payload.request, data={"image": payload.data["image"]})


def project_audio(payload: StagePayload) -> StagePayload:
    return StagePayload(request_id=payload.request_id, request=payload.request, data={"audio": payload.data["audio"]})


def project_prompt(payload: StagePayload) -> StagePayload:
    return StagePayload(request_id=payload.request_id, request=payload.request, data={"prompt": payload.data["prompt"]})


def project_latch(payload: StagePayload) -> StagePayload:
    """A payload that only opens or closes the request downstream; the content went by stream."""
    return StagePayload(request_id=payload.request_id, request=payload.request, data={})


def merge(payloads: dict[str, StagePayload]) -> StagePayload:
    """The join: all inputs of one request in one payload."""
    first = payloads["preprocessing"]
    data: dict[str, object] = {}
    for source in sorted(payloads):
        data.update(payloads[source].data)
    return StagePayload(request_id=first.request_id, request=first.request, data=data)


class Thinker(StreamingSimpleScheduler):
    """Continuous batching: one step makes one token for every running request."""

    def __init__(self, work: Work) -> None:
        super().__init__(None)
        self.work = work
        self.running_requests: dict[str, tuple[StagePayload, int]] = {}

    def is_streaming_payload(self, payload: StagePayload) -> bool:
        return True

    def on_streaming_new_request(self, request_id: str, payload: StagePayload) -> None:
        self.running_requests[request_id] = (payload, 0)

    def clear_stream_state(self, request_id: str) -> None:
        self.running_requests.pop(request_id, None)

    def has_ready_work(self) -> bool:
        return bool(self.running_requests)

    def run_ready_step(self) -> None:
        with self.state_lock:
            batch = dict(self.running_requests)
        if not batch:
            return
        self.work.run(list(batch))
        for request_id, (payload, step) in batch.items():
            self.emit_token(request_id, payload, step)
            if step + 1 < tokens_of(payload):
                with self.state_lock:
                    if request_id in self.running_requests:
                        self.running_requests[request_id] = (payload, step + 1)
                continue
            result = StagePayload(request_id=request_id, request=payload.request, data={"tokens": tokens_of(payload)})
            done = OutgoingMessage(request_id=request_id, type="result", data=result)
            self.complete_stream_request(request_id, [done])

    def emit_token(self, request_id: str, payload: StagePayload, step: int) -> None:
        metadata = {"stream": is_streaming(payload)}
        hidden = torch.full((HIDDEN,), float(step))
        token = torch.tensor([step])
        for target, data in (("talker_ar", hidden), ("decode", token)):
            if not self.is_aborted(request_id):
                self.outbox.put(OutgoingMessage(request_id=request_id, type="stream", data=data, target=target, metadata=metadata))


class PerChunk(StreamingSimpleScheduler):
    """A stage that fires once for every chunk it receives, and once more when its stream and its payload are both in."""

    def __init__(self, work: Work) -> None:
        super().__init__(None)
        self.work = work
        self.chunks: dict[str, int] = {}

    def is_streaming_payload(self, payload: StagePayload) -> bool:
        return True

    def clear_stream_state(self, request_id: str) -> None:
        self.chunks.pop(request_id, None)

    def on_stream_chunk(self, request_id: str, item) -> list[OutgoingMessage]:
        self.work.run([request_id], item.chunk_id)
        self.chunks[request_id] = self.chunks.get(request_id, 0) + 1
        return self.chunk_output(request_id, item)

    def on_stream_done(self, request_id: str) -> list[OutgoingMessage]:
        payload = self.stream_payloads[request_id]
        data = self.final_output(request_id, payload)
        result = StagePayload(request_id=request_id, request=payload.request, data=data)
        return [OutgoingMessage(request_id=request_id, type="result", data=result)]

    def chunk_output(self, request_id: str, item) -> list[OutgoingMessage]:
        raise NotImplementedError

    def final_output(self, request_id: str, payload: StagePayload) -> dict[str, object]:
        raise NotImplementedError


class Talker(PerChunk):
    """One codec chunk for each thinker chunk; at the end of the stream it only closes the request."""

    def chunk_output(self, request_id: str, item) -> list[OutgoingMessage]:
        codec = torch.full((CODEC,), float(item.chunk_id))
        return [OutgoingMessage(request_id=request_id, type="stream", data=codec, target="code2wav", metadata=item.metadata)]

    def final_output(self, request_id: str, payload: StagePayload) -> dict[str, object]:
        return {}


class Decode(PerChunk):
    """Terminal, text: forwards each token to a streaming client, the whole text at the end."""

    def chunk_output(self, request_id: str, item) -> list[OutgoingMessage]:
        if not (item.metadata or {}).get("stream"):
            return []
        data = {"text": f"tok{item.chunk_id} ", "modality": "text"}
        return [OutgoingMessage(request_id=request_id, type="stream", data=data, metadata={"modality": "text"})]

    def final_output(self, request_id: str, payload: StagePayload) -> dict[str, object]:
        self.work.run([request_id])
        count = self.chunks.get(request_id, 0)
        usage = {"prompt_tokens": 1, "completion_tokens": count, "total_tokens": count + 1}
        return {"text": "".join(f"tok{i} " for i in range(count)), "modality": "text", "finish_reason": "stop", "usage": usage}


class Code2Wav(PerChunk):
    """Terminal, audio: forwards each piece of the wave to a streaming client, the whole wave at the end to others."""

    @staticmethod
    def wave(samples: int) -> dict[str, object]:
        data = torch.zeros(samples, dtype=torch.float32).numpy().tobytes()
        return {"audio_waveform": data, "audio_waveform_shape": [samples], "audio_waveform_dtype": "float32",
                "sample_rate": SAMPLE_RATE, "modality": "audio"}

    def chunk_output(self, request_id: str, item) -> list[OutgoingMessage]:
        if not (item.metadata or {}).get("stream"):
            return []
        data = self.wave(SAMPLES_PER_CHUNK)
        return [OutgoingMessage(request_id=request_id, type="stream", data=data, metadata={"modality": "audio"})]

    def final_output(self, request_id: str, payload: StagePayload) -> dict[str, object]:
        self.work.run([request_id])
        if is_streaming(payload):
            return {"modality": "audio", "finish_reason": "stop"}
        return {**self.wave(SAMPLES_PER_CHUNK * self.chunks.get(request_id, 0)), "finish_reason": "stop"}


def create_thinker(compute: str, scale: float, pid_dir: str) -> Thinker:
    announce("thinker", pid_dir)
    return Thinker(Work("thinker", compute, scale))


def create_decode(compute: str, scale: float, pid_dir: str) -> Decode:
    announce("decode", pid_dir)
    return Decode(Work("decode", compute, scale))


def create_talker(compute: str, scale: float, pid_dir: str, gpu_id: int | None = None) -> Talker:
    announce("talker_ar", pid_dir)
    return Talker(Work("talker_ar", compute, scale))


def create_code2wav(compute: str, scale: float, pid_dir: str, gpu_id: int | None = None) -> Code2Wav:
    announce("code2wav", pid_dir)
    return Code2Wav(Work("code2wav", compute, scale))
