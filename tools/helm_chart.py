"""Writes the templates of the Helm chart from the manifests that kustomize installs: `make chart`.

A template is its manifest word for word, comments included, but for its namespace and what CHANGES names. What else a
chart has is written by hand: Chart.yaml, values.yaml with its schema, and what lies in templates/ itself.
"""

import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

DEPLOY = Path(__file__).parent.parent / "node_scheduler" / "deploy"
KUSTOMIZE = DEPLOY / "kubernetes"
CHART = DEPLOY / "helm" / "nls-jupyter"
# What becomes templates, and the value that each asks for.
FOLDERS = {
    "base": "",
    "components/fake_gpu_operator": ".Values.components.fake_gpu_operator",
    "components/host_paths": ".Values.components.host_paths",
    "components/monitoring": ".Values.components.monitoring",
    "components/webhook": ".Values.components.webhook",
    "components/webhook_cert_manager": ".Values.components.webhook_cert_manager",
    "overlays/openshift": ".Values.openshift",
}
# Helm wants the namespace to be there, and a rule file is nothing for a cluster.
LEFT_OUT = {"kustomization.yaml", "namespace.yaml", "alert_rules.yaml"}
DASHBOARD = "components/monitoring/dashboard.json"
OF_THE_CLUSTER = {"ClusterRole", "ClusterRoleBinding", "PriorityClass"}
NAMESPACE = "{{ .Release.Namespace }}"


@dataclass(frozen=True)
class Change:
    """Some of a file's lines are other ones; `times`: how often they are there."""

    old: str
    new: tuple[str, ...]
    times: int = 1

    def made(self, text: str) -> str:
        """The text with it. Raises LookupError where the lines are not there."""
        changed, found = re.subn(rf"^{self.old}\n", lambda _: "".join(f"{n}\n" for n in self.new), text, flags=re.M)
        if found != self.times:
            raise LookupError(f"has {self.old!r} {found} times, not {self.times}: see CHANGES in tools/helm_chart.py")
        return changed


def instead(line: str, *lines: str, times: int = 1) -> Change:
    """Lines in the place of one."""
    return Change(re.escape(line), lines, times)


def after(line: str, *lines: str, times: int = 1) -> Change:
    """Lines after one."""
    return instead(line, line, *lines, times=times)


def where(condition: str, *lines: str) -> tuple[str, ...]:
    """Lines that are there under a condition only."""
    return f"{{{{- if {condition} }}}}", *lines, "{{- end }}"


def further(indent: int, value: str) -> tuple[str, ...]:
    """The items of a value, at the end of a list."""
    return f"{{{{- with {value} }}}}", f"{' ' * indent}{{{{- toYaml . | nindent {indent} }}}}", "{{- end }}"


def block(key: str, value: str) -> Change:
    """A key with all that is below it is a value."""
    indent = len(key) - len(key.lstrip())
    return Change(
        rf"{key}:\n(?: {{{indent + 1}}}.*\n)* {{{indent + 1}}}.*",
        (f"{key}: {{{{- toYaml {value} | nindent {indent + 2} }}}}",),
    )


IMAGE = (
    Change("          image: nls-scheduler:.*", ('          image: {{ include "nls.image" . }}',)),
    instead("          imagePullPolicy: IfNotPresent", "          imagePullPolicy: {{ .Values.image.pullPolicy }}"),
)
SECRETS = ("{{- with .Values.imagePullSecrets }}", "      imagePullSecrets: {{- toYaml . | nindent 8 }}", "{{- end }}")
LABELS = after(
    "  namespace: nls-system",
    "{{- with .Values.monitoring.labels }}",
    "  labels: {{- toYaml . | nindent 4 }}",
    "{{- end }}",
)
CHANGES: dict[str, tuple[Change, ...]] = {
    "base/daemon_set.yaml": (
        *IMAGE,
        instead(
            "      priorityClassName: nls-scheduler",
            '      priorityClassName: {{ .Values.priorityClassName | default "nls-scheduler" | quote }}',
            *where(".Values.runtimeClassName", "      runtimeClassName: {{ .Values.runtimeClassName | quote }}"),
            *SECRETS,
        ),
        block("      nodeSelector", ".Values.nodeSelector"),
        block("      tolerations", ".Values.tolerations"),
        block("          resources", ".Values.resources"),
        after(
            "            - --set=observe_address=[::]:9475",
            *where(
                ".Values.components.fake_gpu_operator",
                "            - --topology=gpu-operator/topology-$(NODE_NAME)",
            ),
            *further(12, ".Values.args"),
        ),
        after("                  fieldPath: metadata.namespace", *further(12, ".Values.env")),
        instead(
            "              add: [SYS_PTRACE]",
            "              add: [SYS_PTRACE{{ if .Values.components.end_processes }}, KILL{{ end }}]",
            *where(
                ".Values.openshift",
                "            # Why: overlays/openshift.",
                "            seLinuxOptions:",
                "              type: spc_t",
            ),
        ),
        after("              mountPath: /tmp", *further(12, ".Values.volumeMounts")),
        instead(
            "            path: /var/lib/kubelet/pod-resources",
            "            path: {{ .Values.kubeletDirectory }}/pod-resources",
        ),
        after("            sizeLimit: 16Mi", *further(8, ".Values.volumes")),
    ),
    "base/network_policy.yaml": (
        after(
            "        - namespaceSelector: {}",
            *where(
                ".Values.components.monitoring",
                "          podSelector:",
                "            matchLabels:",
                "              app.kubernetes.io/name: prometheus",
            ),
        ),
    ),
    "base/policy.yaml": (
        Change(
            r"  policy\.json: \|\n(?: {4}.*\n)* {4}.*",
            ("  policy.json: |", "    {{- .Values.policy | toPrettyJson | nindent 4 }}"),
        ),
    ),
    "components/monitoring/pod_monitor.yaml": (LABELS,),
    "components/monitoring/prometheus_rule.yaml": (LABELS,),
    "components/webhook/deployment.yaml": (
        *IMAGE,
        instead("  replicas: 2", "  replicas: {{ .Values.webhook.replicas }}"),
        after("      enableServiceLinks: false", *SECRETS),
        instead(
            "            - --runtime-class=nvidia",
            *where(".Values.runtimeClassName", "            - --runtime-class={{ .Values.runtimeClassName }}"),
        ),
        after("            - --tolerate=nvidia.com/gpu", *further(12, ".Values.webhook.args")),
        Change("            # Of the init containers.*\n.*NLS_IMAGE\n.*", (
            "            # Of the init containers: the same as above.",
            "            - name: NLS_IMAGE",
            '              value: {{ include "nls.image" . }}',
        )),
        block("          resources", ".Values.webhook.resources"),
        instead(
            "            secretName: nls-webhook-tls", "            secretName: {{ .Values.webhook.secretName }}"
        ),
    ),
    "components/webhook/webhook_configuration.yaml": (
        Change("metadata:\n  name: nls-webhook", (
            "metadata:",
            "  name: nls-webhook",
            *where(
                ".Values.components.webhook_cert_manager",
                "  annotations:",
                "    cert-manager.io/inject-ca-from: nls-system/nls-webhook",
            ),
        )),
        after(
            "    clientConfig:",
            "      {{- with .Values.webhook.caBundle }}",
            "      caBundle: {{ . }}",
            "      {{- end }}",
            times=2,
        ),
    ),
    "components/webhook_cert_manager/certificate.yaml": (
        instead("  secretName: nls-webhook-tls", "  secretName: {{ .Values.webhook.secretName }}"),
    ),
    "overlays/openshift/security_context_constraints.yaml": (
        instead(
            "allowedCapabilities: [SYS_PTRACE]",
            "allowedCapabilities: [SYS_PTRACE{{ if .Values.components.end_processes }}, KILL{{ end }}]",
        ),
    ),
}  # fmt: skip
# Whoever names another PriorityClass has it.
CONDITIONS = {"base/priority_class.yaml": "not .Values.priorityClassName"}


def placed(document: str) -> str:
    """One of the base's documents with what its kustomization adds: namespace and label."""
    (kind,) = re.findall(r"^kind: (\w+)$", document, re.MULTILINE)
    lines = [] if kind in OF_THE_CLUSTER else ["  namespace: nls-system"]
    lines += ["  labels:", "    app.kubernetes.io/part-of: nls-jupyter"]
    (head,) = re.findall(r"^metadata:\n  name: .*\n(?:  labels:\n)?", document, re.MULTILINE)
    return document.replace(head, head.removesuffix("  labels:\n") + "".join(f"{line}\n" for line in lines))


def template(path: str, condition: str) -> str:
    """The template of a manifest. Raises LookupError where something of CHANGES is not in it."""
    text = (KUSTOMIZE / path).read_text(encoding="utf-8")
    text = re.sub(r"\{\{.*?\}\}", lambda braces: f"{{{{`{braces[0]}`}}}}", text)
    try:
        for change in CHANGES.get(path, ()):
            text = change.made(text)
    except LookupError as error:
        raise LookupError(f"{path} {error}") from None
    if path.startswith("base/"):
        text = "---\n".join(placed(document) for document in text.split("---\n"))
    text = text.replace("nls-system", NAMESPACE)
    note = f"{{{{- /* Written by make chart from {path}: change that. */ -}}}}\n"
    return note + ("\n".join(("{{- if " + condition + " }}", text + "{{- end }}\n")) if condition else text)


def written() -> dict[str, str]:
    """Every file of the chart that is written here, by its path in it."""
    files = {f"files/{Path(DASHBOARD).name}": (KUSTOMIZE / DASHBOARD).read_text(encoding="utf-8")}
    for folder, condition in FOLDERS.items():
        for manifest in sorted((KUSTOMIZE / folder).glob("*.yaml")):
            if manifest.name not in LEFT_OUT:
                path = f"{folder}/{manifest.name}"
                files[f"templates/{path}"] = template(path, CONDITIONS.get(path, condition))
    return files


def main() -> None:
    """Ends with a sentence where a manifest no longer has what is changed."""
    try:
        files = written()
    except LookupError as error:
        sys.exit(str(error.args[0]))
    for folder in (CHART / "files", *(CHART / "templates" / name.partition("/")[0] for name in FOLDERS)):
        shutil.rmtree(folder, ignore_errors=True)
    for name, text in files.items():
        (CHART / name).parent.mkdir(parents=True, exist_ok=True)
        (CHART / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
