"""The generator of faults: the same seed makes the same storm, and nothing is left out."""

from storm import faults

NODES = ("node-1", "node-2", "node-3")


def test_a_seed_always_makes_the_same_storm_and_another_one_another():
    assert faults.storm(7, NODES) == faults.storm(7, NODES)
    assert len({tuple(map(str, faults.storm(seed, NODES))) for seed in range(20)}) == 20


def test_every_kind_is_killed_alone_and_several_are_killed_together():
    for seed in range(50):
        storm = faults.storm(seed, NODES)
        alone = [fault.killed[0][1] for fault in storm if len(fault.killed) == 1]
        assert set(alone) == set(faults.KINDS)
        together = [fault for fault in storm if len(fault.killed) > 1]
        assert any({name for _, name in f.killed} == set(faults.CONTROL_PLANE) for f in together)
        assert len(storm) <= len(faults.KINDS) + 3
        for node, name in (victim for fault in storm for victim in fault.killed):
            assert node == NODES[0] or name in faults.ON_EVERY_NODE


def test_every_request_is_made():
    for seed in range(50):
        assert {fault.request for fault in faults.storm(seed, NODES)} == set(faults.REQUESTS)
