"""The files of deploy/: they name only what there is, and they work."""

import os
import re
import shutil
import subprocess
import tomllib

import pytest
from conftest import BINARY, ROOT
from server_support import Server
from support import RUNNEL

DEPLOY = ROOT / "deploy"


class ConfiguredServer(Server):
    """A server that a file configures; the test's own needs are in the file, too."""

    def __init__(self, config, *arguments):
        self.start("--config", config, *arguments)

    def start(self, *arguments):
        self.process = subprocess.Popen([str(BINARY), "serve", *map(str, arguments)], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stderr.readline()
        found = re.search(r"http://[0-9.]+:(\d+)", line)
        assert found, line + self.process.stderr.read()
        self.port = int(found.group(1))


@pytest.fixture(scope="module")
def options():
    """Every option that `pelton serve --help` lists."""
    shown = subprocess.run([str(BINARY), "serve", "--help"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"--([a-z][a-z-]+)", shown))


def with_values(text, **values):
    """The file with some of its values replaced; each must be there."""
    for key, value in values.items():
        text, count = re.subn(rf"(?m)^(\s*){key.replace('_', '-')} = .*$", rf"\g<1>{key.replace('_', '-')} = {value}", text)
        assert count == 1, key
    return text


def everything_on(text):
    return re.sub(r"(?m)^# ([a-z-]+ = )", r"\1", text)


# ---- The configuration file


def test_example_configuration(tmp_path, options):
    text = (DEPLOY / "pelton.toml").read_text()
    assert set(tomllib.loads(everything_on(text))["serve"]) <= options
    config = tmp_path / "pelton.toml"
    config.write_text(with_values(text, model=f'"{RUNNEL}"', port=0))
    with ConfiguredServer(config) as server:
        assert server.post("/v1/completions", {"prompt": "The", "max_tokens": 2})["usage"]["completion_tokens"] <= 2
        assert server.call("GET", "/")[0] == 200
        server.settle()
    # The command line comes first.
    with ConfiguredServer(config, "--disable-page", "--served-model-name", "other") as server:
        assert server.call("GET", "/")[0] == 404
        assert server.call("GET", "/v1/models")[2]["data"][0]["id"] == "other"


def test_every_value_of_the_example_can_be_set(tmp_path):
    (tmp_path / "keys").write_text("somebodys-key\n")
    text = with_values(everything_on((DEPLOY / "pelton.toml").read_text()), model=f'"{RUNNEL}"', port=0, memory='"256MiB"',
                       api_key_file=f'"{tmp_path / "keys"}"')
    text = re.sub(r"(?m)^ssl-\w+ = .*$", "", text)  # tests of HTTPS have certificates
    (tmp_path / "pelton.toml").write_text(text)
    with ConfiguredServer(tmp_path / "pelton.toml") as server:
        assert server.call("GET", "/v1/models")[0] == 401
        models = server.call("GET", "/v1/models", headers={"Authorization": "Bearer somebodys-key"})[2]["data"]
        assert [m["id"] for m in models] == ["small", "small-latest"]
        assert server.call("GET", "/health", headers={"Host": "llm.example.org"})[0] == 200
        assert server.call("GET", "/health", headers={"Host": "other.example.org"})[0] == 403


@pytest.mark.parametrize("line, word", [("no-such-option = 1", "no-such-option"), ("port = 99999", "port"), ("max-queue = many", "max-queue")])
def test_a_wrong_configuration_is_one_line(pelton, tmp_path, line, word):
    config = tmp_path / "pelton.toml"
    config.write_text(f'[serve]\nmodel = "{RUNNEL}"\n{line}\n')
    outcome = pelton("serve", "--config", config)
    assert outcome.code == 2 and word in outcome.err and len(outcome.err.splitlines()) == 1


# ---- systemd


@pytest.fixture
def unit(tmp_path):
    """The unit as it would be with this program in place of the installed one."""
    path = tmp_path / "pelton.service"
    path.write_text((DEPLOY / "systemd/pelton.service").read_text().replace("/usr/bin/pelton", str(BINARY)))
    return path


def test_unit_names_what_there_is(options):
    text = (DEPLOY / "systemd/pelton.service").read_text()
    command = re.search(r"^ExecStart=/usr/bin/pelton serve (.*)$", text, re.M).group(1)
    assert set(re.findall(r"--([a-z-]+)", command)) <= options
    drain = tomllib.loads((DEPLOY / "pelton.toml").read_text())["serve"]["drain-timeout"]
    assert int(re.search(r"^TimeoutStopSec=(\d+)$", text, re.M).group(1)) > drain + 4  # it closes what is left then


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_unit_is_valid_and_hardened(unit):
    def analyze(*arguments):
        return subprocess.run(["systemd-analyze", *map(str, arguments)], capture_output=True, text=True, check=False)

    verified = analyze("verify", "--man=no", unit)
    about_it = [line for line in (verified.stdout + verified.stderr).splitlines() if "pelton" in line]
    assert about_it == []
    rated = analyze("security", "--offline=true", "--threshold=20", unit)  # tenths: 0 is the safest, 100 the least
    assert rated.returncode == 0, rated.stdout + rated.stderr


# ---- The image


def dockerfile():
    return (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")


def test_image_has_the_libraries_and_no_root(options):
    text = dockerfile()
    final = text[text.rindex("\nFROM "):]
    assert re.search(r"^USER 10001", final, re.M) and 'ENTRYPOINT ["pelton", "serve"' in final
    entry = re.search(r"^ENTRYPOINT (.*)$", final, re.M).group(1)
    assert set(re.findall(r"--([a-z-]+)", entry)) <= options
    for source in re.findall(r"^COPY (?!--from)([^\n]*)$", text, re.M):
        assert all((ROOT / name).exists() for name in source.split()[:-1]), source
    if "bookworm" not in text_of("/etc/os-release") or shutil.which("dpkg-query") is None:
        pytest.skip("not on the image's distribution")
    installed = set(re.search(r"--no-install-recommends (.*?) +&&", final).group(1).split())
    linked = subprocess.run(["ldd", str(BINARY)], capture_output=True, text=True, check=True).stdout
    for path in re.findall(r"=> (/\S+)", linked):
        # Of a merged /usr the package database knows one name or the other.
        names = {path, os.path.realpath(path), os.path.realpath(path).removeprefix("/usr")}
        owner = subprocess.run(["dpkg-query", "-S", *names], capture_output=True, text=True, check=False).stdout.split(":")[0]
        assert owner in installed | {"libc6", "libgcc-s1", "libstdc++6"}, f"{path} is of {owner}"


def text_of(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def test_image_health_check_tells_good_from_bad():
    words = re.search(r'HEALTHCHECK .*? CMD \[(.*)\]', dockerfile()).group(1)
    command = [word.encode().decode("unicode_escape") for word in re.findall(r'"((?:[^"\\]|\\.)*)"', words)]
    with Server() as server:
        here = [word.replace("/8000", f"/{server.port}") for word in command]
        assert subprocess.run(here, check=False, timeout=30).returncode == 0
        lost = [word.replace("/health", "/nothing") for word in here]
        assert subprocess.run(lost, check=False, timeout=30).returncode != 0
    assert subprocess.run(here, check=False, timeout=30, stderr=subprocess.DEVNULL).returncode != 0


# ---- Kubernetes


def manifests():
    yaml = pytest.importorskip("yaml", reason="no yaml")
    found = [item for path in sorted((DEPLOY / "kubernetes").glob("*.yaml")) for item in yaml.safe_load_all(path.read_text())]
    return {item["kind"]: item for item in found}


def test_manifests_fit_together(options):
    kinds = manifests()
    assert set(kinds) == {"ConfigMap", "Deployment", "Service", "PodDisruptionBudget"}
    pod = kinds["Deployment"]["spec"]["template"]
    labels = pod["metadata"]["labels"]
    assert labels == kinds["Deployment"]["spec"]["selector"]["matchLabels"] == kinds["Service"]["spec"]["selector"] \
        == kinds["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"]
    [container] = pod["spec"]["containers"]
    assert set(re.findall(r"--([a-z-]+)", " ".join(container["command"]))) <= options
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts.keys() == {volume["name"] for volume in pod["spec"]["volumes"]}
    config = tomllib.loads(kinds["ConfigMap"]["data"]["pelton.toml"])["serve"]
    assert set(config) <= options
    assert config["api-key-file"].startswith(mounts["keys"]) and config["models-path"] == mounts["models"]
    assert container["command"][-1] == mounts["config"] + "/pelton.toml"
    assert config["port"] == container["ports"][0]["containerPort"]
    assert container["ports"][0]["name"] == kinds["Service"]["spec"]["ports"][0]["targetPort"]
    # Time to drain: preStop first, then what the program gives its requests, then what it closes.
    before = int(container["lifecycle"]["preStop"]["exec"]["command"][-1])
    assert pod["spec"]["terminationGracePeriodSeconds"] > before + config["drain-timeout"] + 4
    security = container["securityContext"]
    assert security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"] and security["capabilities"] == {"drop": ["ALL"]}
    assert pod["spec"]["securityContext"]["runAsNonRoot"] and not pod["spec"]["automountServiceAccountToken"]


def test_manifests_configuration_and_probes_work(tmp_path):
    kinds = manifests()
    (tmp_path / "keys").write_text("somebodys-key\n")
    text = with_values(kinds["ConfigMap"]["data"]["pelton.toml"], model=f'"{RUNNEL}"', models_path=f'"{tmp_path}"', port=0, memory='"256MiB"',
                       api_key_file=f'"{tmp_path / "keys"}"', host='"127.0.0.1"')
    (tmp_path / "pelton.toml").write_text(text)
    [container] = kinds["Deployment"]["spec"]["template"]["spec"]["containers"]
    with ConfiguredServer(tmp_path / "pelton.toml") as server:
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            path = container[probe]["httpGet"]["path"]
            assert server.call("GET", path, headers={"Host": "10.1.2.3:8000"})[0] == 200, path
        assert server.call("GET", "/v1/models", headers={"Host": "pelton"})[0] == 401


# ---- The Debian package


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    build = BINARY.resolve().parents[1]
    if not (build / "CPackConfig.cmake").exists() or shutil.which("dpkg-deb") is None or shutil.which("cpack") is None:
        pytest.skip("no build folder that can be packaged")
    out = tmp_path_factory.mktemp("package")
    done = subprocess.run(["cpack", "--config", str(build / "CPackConfig.cmake"), "-B", str(out)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [path] = out.glob("*.deb")
    return path


def test_package_says_what_it_is_and_needs(package):
    def field(name):
        return subprocess.run(["dpkg-deb", "-f", str(package), name], capture_output=True, text=True, check=True).stdout.strip()

    version = subprocess.run([str(BINARY), "--version"], capture_output=True, text=True, check=True).stdout.strip()
    assert field("Package") == "pelton" and field("Version") == version
    needs = field("Depends")
    assert "libc6 (>=" in needs and "libssl3" in needs
    assert "-dev" not in needs


def test_package_unpacks_and_runs(package, tmp_path):
    root, control = tmp_path / "root", tmp_path / "control"
    subprocess.run(["dpkg-deb", "-x", str(package), str(root)], check=True)
    subprocess.run(["dpkg-deb", "-e", str(package), str(control)], check=True)
    files = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    assert files == {"usr/bin/pelton", "etc/pelton/pelton.toml", "usr/lib/systemd/system/pelton.service", "usr/share/doc/pelton/copyright",
                     "usr/share/doc/pelton/serving.md", "usr/share/doc/pelton/pelton.toml"}
    assert (control / "conffiles").read_text() == "/etc/pelton/pelton.toml\n"
    for script in ("postinst", "prerm", "postrm"):
        assert os.access(control / script, os.X_OK)
        subprocess.run(["sh", "-n", str(control / script)], check=True)
    assert (root / "usr/share/doc/pelton/copyright").read_text() == (ROOT / "LICENSE").read_text()
    program = root / "usr/bin/pelton"
    done = subprocess.run([str(program), "serve", str(RUNNEL), "--self-test", "--threads", "1"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
