"""Custom resources with real kubectl: define, use, explain, scale, delete."""

CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: crontabs.stable.example.com
spec:
  group: stable.example.com
  scope: Namespaced
  names: {plural: crontabs, singular: crontab, kind: CronTab, shortNames: [ct], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale:
        specReplicasPath: .spec.replicas
        statusReplicasPath: .status.replicas
    additionalPrinterColumns:
    - {name: Spec, type: string, jsonPath: .spec.cronSpec}
    - {name: Replicas, type: integer, jsonPath: .spec.replicas}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        type: object
        description: A job that comes again.
        properties:
          spec:
            type: object
            required: [cronSpec]
            properties:
              cronSpec:
                type: string
                description: When it runs.
                pattern: '^(\\d+|\\*)(/\\d+)?(\\s+(\\d+|\\*)(/\\d+)?){4}$'
              image: {type: string, default: busybox}
              replicas: {type: integer, minimum: 0, maximum: 10, default: 1}
          status:
            type: object
            properties:
              replicas: {type: integer}
"""
CRONTAB = """
apiVersion: stable.example.com/v1
kind: CronTab
metadata: {name: my-new-cron-object}
spec: {cronSpec: "* * * * */5"}
"""


def define(kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=CRD)
    kubectl("wait", "--for=condition=Established", "crd/crontabs.stable.example.com")


def test_a_custom_resource_is_used_like_any_other(kubectl):
    define(kubectl)
    kubectl("apply", "-f", "-", stdin=CRONTAB)

    table = kubectl("get", "crontabs").out.splitlines()
    assert table[0].split() == ["NAME", "SPEC", "REPLICAS", "AGE"]
    assert table[1].split()[:2] == ["my-new-cron-object", "*"]
    shown = kubectl("get", "ct", "my-new-cron-object", "-o", "json").json
    assert shown["spec"] == {"cronSpec": "* * * * */5", "image": "busybox", "replicas": 1}
    assert "my-new-cron-object" in kubectl("get", "all").out
    assert "Cron Spec:" in kubectl("describe", "crontab", "my-new-cron-object").out

    again = kubectl("apply", "-f", "-", stdin=CRONTAB.replace("*/5", "*/6")).out
    assert "configured" in again
    assert "unchanged" in kubectl("apply", "-f", "-", stdin=CRONTAB.replace("*/5", "*/6")).out
    kubectl("label", "ct", "my-new-cron-object", "a=b")
    patch = '{"spec":{"image":"alpine"}}'
    kubectl("patch", "ct", "my-new-cron-object", "--type=merge", "-p", patch)
    image = kubectl("get", "ct", "-l", "a=b", "-o", "jsonpath={.items[*].spec.image}").out
    assert image == "alpine"
    kubectl("delete", "ct", "my-new-cron-object")
    assert "NotFound" in kubectl("get", "ct", "my-new-cron-object", fails=True).err


def test_kubectl_explains_and_validates_a_custom_resource(kubectl):
    define(kubectl)

    explained = kubectl("explain", "crontab.spec").out
    assert "cronSpec" in explained
    assert "When it runs." in explained
    unknown = CRONTAB.replace("spec: {", "spec: {nonsense: 1, ")
    strict = kubectl("create", "--validate=strict", "-f", "-", stdin=unknown, fails=True).err
    assert 'unknown field "spec.nonsense"' in strict
    wrong = CRONTAB.replace("* * * * */5", "often")
    refused = kubectl("create", "-f", "-", stdin=wrong, fails=True).err
    assert "spec.cronSpec in body should match" in refused


def test_server_side_apply_and_scale_work_on_custom_resources(kubectl):
    define(kubectl)
    kubectl("apply", "--server-side", "-f", "-", stdin=CRONTAB)

    kubectl("scale", "--replicas=3", "ct/my-new-cron-object")
    replicas = kubectl("get", "ct/my-new-cron-object", "-o", "jsonpath={.spec.replicas}").out
    assert replicas == "3"
    other = CRONTAB.replace("*/5", "*/7")
    flags = ("--server-side", "--field-manager=other")
    conflict = kubectl("apply", *flags, "-f", "-", stdin=other, fails=True).err
    assert "conflict" in conflict
    kubectl("apply", *flags, "--force-conflicts", "-f", "-", stdin=other)


def test_deleting_a_definition_deletes_its_objects(kubectl):
    define(kubectl)
    kubectl("apply", "-f", "-", stdin=CRONTAB)

    kubectl("delete", "crd", "crontabs.stable.example.com")  # waits until it is gone

    listed = kubectl("api-resources", "--api-group=stable.example.com", "-o", "name").out
    assert "crontabs" not in listed
    define(kubectl)
    assert "No resources found" in kubectl("get", "crontabs").err


def test_definitions_survive_a_restart(own_server, kubectl):
    kubectl = type(kubectl)(kubectl.binary, own_server.kubeconfig, kubectl.home)
    define(kubectl)
    kubectl("apply", "-f", "-", stdin=CRONTAB)

    own_server.kill()
    own_server.start()

    assert "my-new-cron-object" in kubectl("get", "crontabs").out


def test_kinds_of_our_own_group_are_served(kubectl):
    route = """
    {"apiVersion": "motley.io/v1", "kind": "Route", "metadata": {"name": "shop"},
     "spec": {"host": "shop.example.com", "paths": [{"path": "/", "service": "web", "port": 80}]}}
    """
    kubectl("apply", "-f", "-", stdin=route)

    assert "shop.example.com" in kubectl("get", "routes").out
    assert "host" in kubectl("explain", "route.spec").out
    wrong = route.replace('"path": "/"', '"path": "x"')
    assert "should match '^/'" in kubectl("apply", "-f", "-", stdin=wrong, fails=True).err
    listed = kubectl("api-resources", "--api-group=motley.io", "-o", "name").out.split()
    names = (
        "batches bindings callgraphs decisions functions imagemaps invocations networktopologies"
        " routes slurmclusters slurmjobs triggers workflows"
    )
    assert sorted(listed) == [f"{name}.motley.io" for name in names.split()]
