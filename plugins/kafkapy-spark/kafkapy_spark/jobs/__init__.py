"""Jobs on Kafka topics: each a function that takes a SparkSession and returns a Summary, and a command of the same
options (`kafkapy-spark <job>`).

    session     the options that all commands have, and the SparkSession that a command runs on
    progress    what is shown while a job runs
    summary     what a job has done

A job's module has its function and, as `command`, its command; kafkapy_spark.cli names it in its table.
"""
