"""Schemas of the kinds by which work goes to a Slurm cluster: SlurmJob and SlurmCluster.

A job's spec may be changed until the bridge has begun to stage it; after that a rule refuses every
change, because what runs on the cluster would no longer be what the object says.
"""

from motley.api.structural import shapes
from motley.api.structural.shapes import CONDITIONS as _CONDITIONS
from motley.api.structural.shapes import STRING as _STRING
from motley.api.structural.shapes import TIME as _TIME

_MAP = {"type": "object", "additionalProperties": _STRING}
_RULES = "x-kubernetes-validations"
# A folder or a file within the job's own: no way out of it.
_INSIDE = r"^[^/\\\x00-\x1f]([^\\\x00-\x1f]*)$"
_WORD = r"^[^\s;&|<>`$\\\x00-\x1f]*$"  # goes into a directive of the batch script
_TIME_LIMIT = r"^([0-9]+-)?[0-9]+(:[0-9]{1,2}){0,2}$|^([0-9]+h)?([0-9]+m)?([0-9]+s)?$"
_FROZEN = {
    "rule": (
        "!has(oldSelf.status) || !has(oldSelf.status.attempt) || oldSelf.status.attempt == 0"
        " || self.spec == oldSelf.spec"
    ),
    "message": (
        "spec cannot be changed once the job has been staged to its cluster, because it may"
        " already be running there: delete the job and create it anew"
    ),
}
_KEY_REF = shapes.record(
    {"name": _STRING, "key": shapes.text("Of its files, by key; all when empty.")}, "name"
)
_SECRET = shapes.record({"namespace": _STRING, "name": _STRING}, "namespace", "name")
_HOST_KEYS = shapes.list_of(
    _STRING,
    "Public keys of which the host must show one, as `ssh-ed25519 AAAA…`; a line that begins with"
    " `@cert-authority` names an authority for host certificates. Nothing else is trusted.",
    minItems=1,
)
_PORT = shapes.count("The SSH port.", default=22, minimum=1, maximum=65535)

_INPUT = shapes.record(
    {
        "name": shapes.text("Its name in the job's folder.", pattern=_INSIDE, maxLength=255),
        "path": shapes.text("A file or folder on the machine that submits the job."),
        "content": shapes.text("The file itself."),
        "configMap": _KEY_REF,
        "secret": _KEY_REF,
        "clusterPath": shapes.text("A file or folder that is on the cluster already."),
    },
)
_MAIL = shapes.record(
    {
        "type": shapes.text(
            "What to write about.", enum=["begin", "end", "fail", "all"], default="all"
        ),
        "user": shapes.text(
            "To whom: an address, or a name in the cluster's mailDomain.",
            pattern=_WORD,
            minLength=1,
            maxLength=254,
        ),
        "via": shapes.text(
            "Who sends it: Slurm itself, the bridge through the cluster's SMTP server, or both.",
            enum=["Slurm", "SMTP", "Both"],
            default="Slurm",
        ),
    },
    "user",
)
_SPEC = shapes.record(
    {
        "cluster": shapes.text("The SlurmCluster to run on.", default="default", minLength=1),
        "files": {**_MAP, "description": "Source files, by name."},
        "sourcePath": shapes.text(
            "A source file, or a folder of them, on the machine that submits the job."
        ),
        "inputs": shapes.list_of(_INPUT, "What else the job needs in its folder.", maxItems=64),
        "script": shapes.text("The whole batch script, when it is not made from the fields here."),
        "build": shapes.text(
            "The command that builds the program. Made from the compiler and the sources when"
            " there is none and there are sources to compile."
        ),
        "buildOn": shapes.text(
            "Where to build: on the login node before the job is submitted, or at the job's start.",
            enum=["Login", "Job"],
            default="Login",
        ),
        "compiler": shapes.text("nvcc for .cu, cc for .c, c++ for C++ unless it is given."),
        "compilerFlags": shapes.list_of(_STRING, "-O3 unless they are given.", maxItems=64),
        "command": shapes.text("The command that runs the program, in the job's folder."),
        "args": shapes.list_of(_STRING, "Words after the command.", maxItems=256),
        "partition": shapes.text(
            "The queue; the cluster's defaultPartition unless given.", pattern=_WORD, maxLength=64
        ),
        "account": shapes.text("The account to charge.", pattern=_WORD, maxLength=64),
        "qos": shapes.text("The quality of service.", pattern=_WORD, maxLength=64),
        "nodes": shapes.count("How many nodes.", default=1, minimum=1),
        "numTasksPerNode": shapes.count("Tasks on each node.", default=1, minimum=1),
        "cpusPerTask": shapes.count("Processors for each task.", default=1, minimum=1),
        "gpuResources": shapes.count("Graphics processors on each node.", default=0),
        "gpuType": shapes.text("Which kind, as the site calls it.", pattern=_WORD, maxLength=64),
        "memory": shapes.text(
            "Memory on each node, as `4Gi`.",
            pattern=r"^[0-9]+(\.[0-9]+)?([KMGT]i?|k)?$",
            maxLength=20,
        ),
        "timeLimit": shapes.text(
            "The most it may run: `1h30m`, or as Slurm writes it, `1-12:00:00`.",
            pattern=_TIME_LIMIT,
            maxLength=32,
        ),
        "array": shapes.text(
            "Run it once for each index: `0-9`, `1,3,5`, `0-99%4`.",
            pattern=r"^[0-9]+(-[0-9]+(:[0-9]+)?)?(,[0-9]+(-[0-9]+(:[0-9]+)?)?)*(%[0-9]+)?$",
            maxLength=256,
        ),
        "dependencies": shapes.list_of(
            shapes.record(
                {
                    "job": shapes.text("A SlurmJob of the same namespace.", minLength=1),
                    "type": shapes.text(
                        "How it must have ended, or that it has begun.",
                        enum=["afterok", "afternotok", "afterany", "after"],
                        default="afterok",
                    ),
                },
                "job",
            ),
            "Jobs of the same cluster that come first.",
            maxItems=32,
        ),
        "environment": {**_MAP, "description": "Environment variables."},
        "modules": shapes.list_of(
            {"type": "string", "pattern": _WORD, "maxLength": 128},
            "Environment modules to load.",
            maxItems=64,
        ),
        "outputs": shapes.list_of(
            {"type": "string", "pattern": _INSIDE, "maxLength": 255},
            "Patterns of the files to bring back, such as `*.csv`.",
            maxItems=64,
        ),
        "resultFileName": shapes.text(
            "NAME.out and NAME.err hold what it prints; the job's name unless given.",
            pattern=r"^[A-Za-z0-9._-]+$",
            maxLength=200,
        ),
        "resultFilePath": shapes.text(
            "The folder for the results on the machine that submits the job."
        ),
        "mail": _MAIL,
        "retries": shapes.count("How often to submit it again when it fails.", default=0),
        "ttlSecondsAfterFinished": shapes.count("When to delete it after its end."),
    }
)
SLURM_JOB = shapes.record(
    {
        "spec": _SPEC,
        "status": shapes.record(
            {
                "phase": {
                    "type": "string",
                    "enum": ["Pending", "Running", "Completed", "Failed", "Cancelled"],
                },
                "reason": shapes.text("Why it is in this phase, in one word."),
                "message": shapes.text("The same for people; the compiler's text, for one."),
                "attempt": shapes.count("Which submission this is, from 1."),
                "jobID": shapes.text("Slurm's number for it."),
                "state": shapes.text("Slurm's own word for its state."),
                "exitCode": {"type": "integer"},
                "node": shapes.text("Where Slurm runs it."),
                "directory": shapes.text("The job's folder on the cluster."),
                "tasks": {
                    "type": "object",
                    "description": "Tasks of an array, by phase.",
                    "additionalProperties": {"type": "integer"},
                },
                "output": shapes.text("The end of what it has printed."),
                "error": shapes.text("The end of what it has printed as errors."),
                "results": shapes.list_of(
                    shapes.record(
                        {"name": _STRING, "bytes": {"type": "integer"}, "sha256": _STRING}
                    ),
                    "The files brought back.",
                ),
                "resultPath": shapes.text("Where they are, on the bridge's machine."),
                "mailed": shapes.list_of(_STRING, "What was written about by SMTP."),
                "submitTime": _TIME,
                "startTime": _TIME,
                "completionTime": _TIME,
                "conditions": _CONDITIONS,
            }
        ),
    },
    "spec",
    **{_RULES: [_FROZEN]},
)
_JUMP = shapes.record(
    {
        "host": shapes.text("The host to go through.", minLength=1),
        "port": _PORT,
        "user": shapes.text("Who to be there; the cluster's user unless given."),
        "hostKeys": _HOST_KEYS,
        "credentialsSecret": _SECRET,
    },
    "host",
    "hostKeys",
)
_SMTP = shapes.record(
    {
        "host": shapes.text("The mail server.", minLength=1),
        "port": shapes.count("Its port.", default=25, minimum=1, maximum=65535),
        "from": shapes.text("The sender's address.", minLength=1),
        "security": shapes.text(
            "How the connection is protected.", enum=["None", "StartTLS", "TLS"], default="StartTLS"
        ),
        "credentialsSecret": _SECRET,
    },
    "host",
    "from",
)
_LIMITS = shapes.record(
    {
        "maxJobs": shapes.count("Jobs in Slurm's hands at once; no limit when 0.", default=0),
        "maxGpus": shapes.count("Graphics processors of one job; no limit when 0.", default=0),
        "maxNodes": shapes.count("Nodes of one job; no limit when 0.", default=0),
        "maxTime": shapes.text("The longest time limit.", pattern=_TIME_LIMIT, maxLength=32),
        "partitions": shapes.list_of(_STRING, "Partitions that may be used; all when empty."),
    }
)
_NODE = shapes.record(
    {
        "name": shapes.text("The Node's name; slurm-NAME unless given."),
        "runtime": shapes.text(
            "How containers run there; looked for unless given. Podman is never taken unasked.",
            enum=["Auto", "Apptainer", "Singularity", "Enroot", "Podman"],
            default="Auto",
        ),
        "pods": shapes.count("Pods at once.", default=110, minimum=1),
        "labels": {**_MAP, "description": "More labels for the Node."},
    }
)
SLURM_CLUSTER = shapes.record(
    {
        "spec": shapes.record(
            {
                "hosts": shapes.list_of(
                    _STRING, "Login nodes, tried in turn; `HOST` or `HOST:PORT`.", minItems=1
                ),
                "port": _PORT,
                "user": shapes.text("Who to be there.", minLength=1),
                "credentialsSecret": {
                    **_SECRET,
                    "description": "A Secret of the type kubernetes.io/ssh-auth: ssh-privatekey,"
                    " and with it ssh-certificate and passphrase where there are such.",
                },
                "hostKeys": _HOST_KEYS,
                "jumpHost": _JUMP,
                "workDirectory": shapes.text("Where jobs work there.", default="motley"),
                "defaultPartition": shapes.text("The usual queue.", default="dgx2", pattern=_WORD),
                "mailDomain": shapes.text("What follows the @ of plain user names."),
                "scriptTemplate": shapes.text(
                    "The site's own batch script, with ${directives}, ${modules}, ${environment},"
                    " ${build}, ${run}, ${name} and ${directory} in it."
                ),
                "setup": shapes.text("Commands before every build and run, `source …` for one."),
                "pollSeconds": shapes.count(
                    "How often the queue is looked at.", default=5, minimum=1, maximum=3600
                ),
                "limits": _LIMITS,
                "smtp": _SMTP,
                "virtualNode": {**_NODE, "description": "Offer the cluster as a Node."},
            },
            "hosts",
            "user",
            "credentialsSecret",
            "hostKeys",
        ),
        "status": shapes.record(
            {
                "host": shapes.text("The login node in use."),
                "version": shapes.text("Slurm's version."),
                "runtime": shapes.text("What runs containers there."),
                "partitions": shapes.list_of(_STRING, "Its partitions."),
                "jobs": shapes.count("Jobs of ours in its hands."),
                "conditions": _CONDITIONS,
            }
        ),
    },
    "spec",
)
