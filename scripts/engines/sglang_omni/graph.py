"""The pipelines a run can have, as SGLang-Omni's own PipelineConfig; each stage gets a process of its own."""

from __future__ import annotations

from sglang_omni.config import FactoryArgs, PipelineConfig, PlacementConfig, StageConfig

# The engine's CPU platform sends a stream chunk over 16 KiB only between stages that are placed on a device
# (and then through host shared memory). No device is opened: a stage that may own child processes leaves that to them.
PLACED = {"gpu": 0, "allow_child_processes": True}
JOIN = ["preprocessing", "image_encoder", "audio_encoder"]


def pipeline(graph: str, *, compute: str, scale: float, pid_dir: str) -> PipelineConfig:
    """graph "aggregate": the inputs join at mm_aggregate; "speech": at thinker and again at talker_ar, as Qwen3-Omni has it in 0.1.9."""
    build = {"aggregate": aggregate_stages, "speech": speech_stages}[graph]
    factory = {"compute": compute, "scale": scale, "pid_dir": pid_dir}
    stages = [
        StageConfig(name=name, process=name, factory_path=f"mock_stages.create_{creator}", factory=FactoryArgs(**factory), **edges)
        for name, creator, edges in build()
    ]
    placement = PlacementConfig(require_memory_fraction_for_colocation=False)
    return PipelineConfig(model_path="mock", name="qwen3-omni-mock", stages=stages, placement=placement)


def streaming_tail() -> list[tuple[str, str, dict[str, object]]]:
    return [
        ("decode", "decode", {"terminal": True, "can_accept_stream_before_payload": True}),
        ("code2wav", "code2wav", {**PLACED, "terminal": True, "can_accept_stream_before_payload": True}),
    ]


def aggregate_stages() -> list[tuple[str, str, dict[str, object]]]:
    return [
        ("preprocessing", "preprocessing", {
            "next": ["image_encoder", "audio_encoder", "mm_aggregate"],
            "project_payload": {"image_encoder": "mock_stages.project_image", "audio_encoder": "mock_stages.project_audio",
                                "mm_aggregate": "mock_stages.project_prompt"}}),
        ("image_encoder", "image_encoder", {"next": "mm_aggregate"}),
        ("audio_encoder", "audio_encoder", {"next": "mm_aggregate"}),
        ("mm_aggregate", "aggregate", {"wait_for": JOIN, "merge_fn": "mock_stages.merge", "next": ["thinker", "talker_ar"]}),
        ("thinker", "thinker", {"next": "decode", "stream_to": ["talker_ar", "decode"],
                                "project_payload": {"decode": "mock_stages.project_latch"}}),
        ("talker_ar", "talker", {**PLACED, "next": "code2wav", "stream_to": ["code2wav"], "can_accept_stream_before_payload": True,
                                 "project_payload": {"code2wav": "mock_stages.project_latch"}}),
        *streaming_tail(),
    ]


def speech_stages() -> list[tuple[str, str, dict[str, object]]]:
    join = {"wait_for": JOIN, "merge_fn": "mock_stages.merge"}
    return [
        ("preprocessing", "preprocessing", {
            "next": ["image_encoder", "audio_encoder", "thinker", "talker_ar"],
            "project_payload": {"image_encoder": "mock_stages.project_image", "audio_encoder": "mock_stages.project_audio",
                                "thinker": "mock_stages.project_prompt", "talker_ar": "mock_stages.project_prompt"}}),
        ("image_encoder", "image_encoder", {"next": ["thinker", "talker_ar"]}),
        ("audio_encoder", "audio_encoder", {"next": ["thinker", "talker_ar"]}),
        ("thinker", "thinker", {**join, "next": "decode", "stream_to": ["talker_ar", "decode"],
                                "project_payload": {"decode": "mock_stages.project_latch"}}),
        ("talker_ar", "talker", {**PLACED, **join, "next": "code2wav", "stream_to": ["code2wav"], "can_accept_stream_before_payload": True,
                                 "project_payload": {"code2wav": "mock_stages.project_latch"}}),
        *streaming_tail(),
    ]
