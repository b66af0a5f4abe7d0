"""A program of the soak, which dies and is started again at its place; what it says goes to one log."""

import http.client
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

STOPPED_WITHIN_S = 60


class Program:
    """`lakelog` with these arguments, started."""

    def __init__(self, name: str, directory: Path, *arguments: str) -> None:
        self.name, self.log = name, directory / f"{name}.log"
        self._command = [sys.executable, "-m", "lakelog", *arguments]
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def runs(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """End it at once, as a power cut would end the process."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Ask it to end in order, and wait for that."""
        self._process.terminate()
        try:
            self._process.wait(STOPPED_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError(f"{self.name} did not stop within {STOPPED_WITHIN_S} s of SIGTERM") from None

    @property
    def resident_mb(self) -> float:
        """Its memory now, in MB; 0 when it has just ended."""
        with suppress(OSError):
            found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self._process.pid}/status").read_text())
            return int(found[1]) * 1024 / 1e6 if found else 0.0
        return 0.0


class SoakGateway(Program):
    """`lakelog serve` with both doors, at ports that it keeps."""

    def __init__(self, name: str, directory: Path, root: str, port: int, kafka_port: int) -> None:
        self.address, self.bootstrap = f"127.0.0.1:{port}", f"127.0.0.1:{kafka_port}"
        self.url = f"http://{self.address}"
        ports = ("--port", str(port), "--kafka-port", str(kafka_port))
        super().__init__(name, directory, "serve", "--data", root, *ports)

    def ready(self) -> bool:
        """Whether the gateway takes requests."""
        connection = http.client.HTTPConnection(self.address, timeout=5)
        try:
            connection.request("GET", "/ready")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
