"""Schemas of the kinds by which work goes to a Slurm cluster: SlurmJob and SlurmCluster."""

from motley.api.structural import shapes
from motley.api.structural.shapes import CONDITIONS as _CONDITIONS
from motley.api.structural.shapes import STRING as _STRING
from motley.api.structural.shapes import TIME as _TIME

_MAP = {"type": "object", "additionalProperties": _STRING}
SLURM_JOB = shapes.record(
    {
        "spec": shapes.record(
            {
                "cluster": shapes.text("The SlurmCluster to run on.", default="default"),
                "script": shapes.text(
                    "The batch script, when it is not made from the fields below."
                ),
                "files": {**_MAP, "description": "Files to bring along, by name."},
                "sourcePath": shapes.text(
                    "A file to bring along, on the machine that submits the job."
                ),
                "resultPath": shapes.text(
                    "The folder on that machine for what the job has written, when it has ended."
                ),
                "mail": shapes.record(
                    {
                        "type": shapes.text(
                            "What to write about.", enum=["begin", "end", "fail", "all"]
                        ),
                        "user": shapes.text("To whom, as the cluster knows its users."),
                    },
                    "type",
                    "user",
                ),
                "filesFrom": shapes.free("A ConfigMap or Secret with files to bring along."),
                "build": shapes.text("The command that builds the program, on the cluster."),
                "command": shapes.text("The command that runs it."),
                "partition": _STRING,
                "nodes": shapes.count("How many nodes.", default=1, minimum=1),
                "tasksPerNode": shapes.count("Tasks on each node.", default=1, minimum=1),
                "cpusPerTask": shapes.count("Processors for each task.", default=1, minimum=1),
                "gpus": shapes.count("Graphics processors.", default=0),
                "timeLimit": shapes.text("The most it may run, as Slurm writes it."),
                "output": shapes.text("The file for its output.", default="%j.out"),
                "error": shapes.text("The file for its errors.", default="%j.err"),
            }
        ),
        "status": shapes.record(
            {
                "phase": {
                    "type": "string",
                    "enum": ["Pending", "Submitted", "Running", "Succeeded", "Failed", "Cancelled"],
                },
                "jobID": _STRING,
                "state": shapes.text("Slurm's own word for its state."),
                "exitCode": {"type": "integer"},
                "output": _STRING,
                "error": _STRING,
                "startTime": _TIME,
                "completionTime": _TIME,
                "conditions": _CONDITIONS,
            }
        ),
    },
    "spec",
)
SLURM_CLUSTER = shapes.record(
    {
        "spec": shapes.record(
            {
                "host": shapes.text("The login node."),
                "port": shapes.count("Its SSH port.", default=22, minimum=1, maximum=65535),
                "user": _STRING,
                "credentialsSecret": shapes.text("The Secret with the SSH key or password."),
                "hostKey": shapes.text("The login node's public key; without it none is trusted."),
                "workDir": shapes.text("Where jobs work there.", default="motley"),
                "partitions": shapes.list_of(
                    _STRING, "Partitions that may be used; all when empty."
                ),
            },
            "host",
            "user",
        ),
        "status": shapes.record({"conditions": _CONDITIONS}),
    },
    "spec",
)
