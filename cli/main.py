import sys, os, click
@click.group()
def main(): pass
@main.group()
def worker(): pass
@worker.command()
def run():
    from convertq.worker.config import read_config
    from convertq.worker.log import set_up_logging
    from convertq.worker.supervisor import Supervisor
    c=read_config(os.environ, needs_gateway=True); set_up_logging(c)
    sys.exit(Supervisor(c).run())
if __name__=="__main__": main()
