"""Java processes of a Flink cluster on this machine: their commands and settings."""

from __future__ import annotations

from pathlib import Path

from strategos.components.shards.flink import jars

# Started without Flink's scripts, which derive the sizes: each part must be given.
_SETTINGS = """\
jobmanager.rpc.address: 127.0.0.1
jobmanager.rpc.port: 0
jobmanager.bind-host: 127.0.0.1
jobmanager.memory.process.size: 768m
rest.address: 127.0.0.1
rest.bind-address: 127.0.0.1
rest.bind-port: 0
web.submit.enable: false
taskmanager.host: 127.0.0.1
taskmanager.bind-host: 127.0.0.1
taskmanager.numberOfTaskSlots: {slots}
taskmanager.cpu.cores: {slots}.0
taskmanager.memory.task.heap.size: {heap}m
taskmanager.memory.task.off-heap.size: 0m
taskmanager.memory.managed.size: {buffers}m
taskmanager.memory.network.min: {buffers}m
taskmanager.memory.network.max: {buffers}m
taskmanager.memory.framework.heap.size: 128m
taskmanager.memory.framework.off-heap.size: {elements}m
taskmanager.memory.jvm-metaspace.size: 256m
taskmanager.memory.jvm-overhead.min: 128m
taskmanager.memory.jvm-overhead.max: 128m
# With the default, 512, a shuffle of many stages exhausts the buffers.
taskmanager.network.sort-shuffle.min-buffers: 64
cluster.evenly-spread-out-slots: true
cluster.registration.error-delay: 300
cluster.registration.initial-timeout: 300
# A process that died is noticed within seconds, by heartbeats that cannot be sent; the
# time-out is for one that lives, and is late on a busy machine.
heartbeat.interval: 1000
heartbeat.timeout: 300000
heartbeat.rpc-failure-threshold: 2
slot.request.timeout: 300000
# By default 10 s: at a load of 30, each late answer was a restart of the job.
pekko.ask.timeout: 5 min
# Longer than `--environment_cache_millis`, so that a restarted job gets new workers.
# A dead worker fails many tasks, each of which counts in the other strategies; failures
# within one delay are one here.
restart-strategy.type: exponential-delay
restart-strategy.exponential-delay.initial-backoff: 6 s
restart-strategy.exponential-delay.max-backoff: 7 s
restart-strategy.exponential-delay.jitter-factor: 0
restart-strategy.exponential-delay.attempts-before-reset-backoff: 5
restart-strategy.exponential-delay.reset-backoff-threshold: 1 h
classloader.resolve-order: parent-first
io.tmp.dirs: {folder}
blob.storage.directory: {folder}/blobs
web.upload.dir: {folder}/upload
"""

# Megabytes for each task slot of a TaskManager.
_SLOT_BUFFERS = 128
# Batches on their way to and from workers, in both kinds of memory. An analysis of 10M
# rows failed with a heap of 256, and with 128 outside of it.
_SLOT_HEAP, _SLOT_ELEMENTS = 448, 768

_OPENS = ("lang", "lang.reflect", "net", "io", "nio", "text", "time", "util")
_CONCURRENT = ("util.concurrent", "util.concurrent.atomic", "util.concurrent.locks")
_ACCESS = (  # which Flink 1.19 needs since Java 17
    *(f"--add-opens=java.base/java.{p}=ALL-UNNAMED" for p in (*_OPENS, *_CONCURRENT)),
    "--add-exports=java.base/sun.net.util=ALL-UNNAMED",
    "--add-exports=java.management/sun.management=ALL-UNNAMED",
)
_VENDORED = "org.apache.beam.vendor.grpc.v1p60p1.io.netty"
_LOCAL = (
    "-Djava.security.manager=LocalCallersOnly",
    f"-D{_VENDORED}.transport.noNative=true",  # native sockets ask no manager
)
_LOG = "-Dorg.slf4j.simpleLogger"
_COMMON = (
    *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),  # starts fast, in little memory
    "-XX:MetaspaceSize=160m",  # classes alone caused three full collections
    *(f"{_LOG}.defaultLogLevel=info", f"{_LOG}.showDateTime=true"),
    f"{_LOG}.dateTimeFormat=HH:mm:ss.SSS",
    # 10 s are too short on a busy machine; Flink's setting for it has no effect.
    "-Dpekko.remote.classic.startup-timeout=150s",
)
_RUNTIME = "org.apache.flink.runtime"
# Jars that a job does not carry, more than half of the bytes: any Flink has its own,
# and only the job server itself uses clouds' clients.
_NOT_UPLOADED = (
    *("flink-", "google-cloud-", "gapic-", "grpc-", "proto-google-", "conscrypt-"),
    *("opencensus-", "opentelemetry-"),
)

MASTER_READY = r"Rest endpoint listening at (\S+:\d+)"
"""Pattern of a JobManager's log line once its REST API answers."""
SERVER_READY = r"JobService started on \S+:(\d+)"
"""Pattern of the log line of Beam's job server once it answers."""
SUBMITTED = r"Submitting job '[^']*' \(([0-9a-f]{32})\)"
"""Pattern of its log line before it sends a job to Flink."""


class Commands:
    """The commands that start the processes of a cluster.

    All of them listen on the loopback interface only.
    """

    def __init__(self, java: str, installed: Path, folder: Path, slots: int):
        """Writes Flink's settings.

        Args:
          java: Path of `java`.
          installed: See `jars.find`.
          folder: Folder for settings and for the temporary files of the processes.
          slots: Task slots of each TaskManager.
        """
        self._java, self._jars, self._folder = java, installed, folder
        self._heap = _SLOT_HEAP * slots
        buffers, elements = _SLOT_BUFFERS * slots, _SLOT_ELEMENTS * slots
        self._direct = 64 + buffers + elements
        settings = _SETTINGS.format(
            folder=folder,
            slots=slots,
            heap=self._heap,
            buffers=buffers,
            elements=elements,
        )
        (folder / "flink-conf.yaml").write_text(settings)

    def job_manager(self) -> list[str]:
        """Flink's JobManager; the kernel chooses its ports."""
        main = f"{_RUNTIME}.entrypoint.StandaloneSessionClusterEntrypoint"
        return [*self._of_flink("-Xmx512m", main)]

    def task_manager(self, name: str, port: int) -> list[str]:
        """A Flink TaskManager.

        Args:
          name: Unique in the cluster.
          port: The RPC port of the JobManager.
        """
        heap = f"-Xmx{self._heap + 128}m"  # and the framework's heap, as set above
        memory = (heap, f"-XX:MaxDirectMemorySize={self._direct}m")
        own = (f"taskmanager.resource-id={name}", f"jobmanager.rpc.port={port}")
        main = f"{_RUNTIME}.taskexecutor.TaskManagerRunner"
        return [*self._of_flink(*memory, main), *(a for o in own for a in ("-D", o))]

    def job_server(self, master: str, upload: bool) -> list[str]:
        """Beam's job server; the kernel chooses its ports.

        Args:
          master: `host:port` of Flink's REST API.
          upload: Whether jobs carry the jars, because the cluster has none of Beam's.
        """
        files = sorted(self._jars.glob("lib/*.jar")) if upload else []
        seen = [str(f) for f in files if not f.name.startswith(_NOT_UPLOADED)]
        return [
            *self._base("-Xmx768m"),
            f"-Dhidden.jars={self._jars / 'lib'}",
            f"-Dseen.jars={':'.join(seen)}",
            "-Djava.system.class.loader=HiddenJars",
            *("-cp", str(self._jars / jars.OWN)),
            "org.apache.beam.runners.flink.FlinkJobServerDriver",
            f"--flink-master={master}",
            f"--flink-conf-dir={self._folder}",
            *("--job-host=127.0.0.1", "--job-port=0", "--artifact-port=0"),
            *("--expansion-port=-1", f"--artifacts-dir={self._folder}/artifacts"),
        ]

    def _of_flink(self, *arguments: str) -> list[str]:
        *memory, main = arguments
        settings = ("--configDir", str(self._folder))
        return [*self._base(*memory), *self._class_path(), main, *settings]

    def _class_path(self) -> tuple[str, str]:
        return "-cp", f"{self._jars}/lib/*:{self._jars}/{jars.OWN}"

    def _base(self, *memory: str) -> list[str]:
        temporary = f"-Djava.io.tmpdir={self._folder}"
        return [self._java, *_COMMON, temporary, *memory, *_ACCESS, *_LOCAL]
