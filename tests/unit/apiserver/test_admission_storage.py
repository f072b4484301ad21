"""Classes for who names none, growth of claims, and protection of volumes."""

CLAIMS = "/api/v1/namespaces/demo/persistentvolumeclaims"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"


def claim(name, size="1Gi", **spec):
    resources = {"requests": {"storage": size}}
    return {
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": resources, **spec},
    }


async def storage_class(api, name, *, default=False, **fields):
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"} if default else {}
    body = {"metadata": {"name": name, "annotations": annotations}, "provisioner": "p.example/p"}
    assert (await api.create(CLASSES, {**body, **fields})).code == 201


async def test_the_default_class_is_for_claims_that_name_none(api):
    await storage_class(api, "usual", default=True)
    await storage_class(api, "other")

    async def class_of(name, **spec):
        return (await api.create(CLAIMS, claim(name, **spec))).json["spec"]["storageClassName"]

    assert await class_of("a") == "usual"
    assert await class_of("b", storageClassName="") == ""
    assert await class_of("c", storageClassName="other") == "other"


async def test_a_claim_grows_where_its_class_allows_it(api):
    await storage_class(api, "elastic", allowVolumeExpansion=True)
    await storage_class(api, "fixed")
    for name in ("elastic", "fixed"):
        await api.create(CLAIMS, claim(name, storageClassName=name))
        bound = {"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}}
        await api.patch(f"{CLAIMS}/{name}/status", bound)
    grown = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}

    assert (await api.patch(f"{CLAIMS}/elastic", grown)).code == 200
    refused = await api.patch(f"{CLAIMS}/fixed", grown)
    assert refused.code == 403
    assert refused.message == (
        'persistentvolumeclaims "fixed" is forbidden: only dynamically provisioned pvc can be '
        "resized and the storageclass that provisions the pvc must support resize"
    )


async def test_claims_and_volumes_are_protected_from_their_birth(api):
    await api.create(CLAIMS, claim("a"))
    volume = {
        "metadata": {"name": "v"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/x"},
        },
    }
    made = await api.create("/api/v1/persistentvolumes", volume)
    deleted = await api.delete(f"{CLAIMS}/a")

    assert made.json["metadata"]["finalizers"] == ["kubernetes.io/pv-protection"]
    assert deleted.json["metadata"]["deletionTimestamp"]
    assert (await api.get(f"{CLAIMS}/a")).code == 200


async def test_the_default_ingress_class_is_for_ingresses_that_name_none(api):
    url = "/apis/networking.k8s.io/v1"
    mark = {"ingressclass.kubernetes.io/is-default-class": "true"}
    body = {"metadata": {"name": "usual", "annotations": mark}, "spec": {"controller": "a.b/c"}}
    assert (await api.create(f"{url}/ingressclasses", body)).code == 201
    backend = {"service": {"name": "s", "port": {"number": 80}}}
    ingress = {"metadata": {"name": "i"}, "spec": {"defaultBackend": backend}}

    found = await api.create(f"{url}/namespaces/demo/ingresses", ingress)

    assert found.json["spec"]["ingressClassName"] == "usual"
